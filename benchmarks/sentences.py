"""Speed of sentence splitting on one core, and its agreement with Punkt of NLTK (Kiss & Strunk 2006).

    python benchmarks/sentences.py FOLDER [--gold ../shared/data] [--train-mb 8] [--test-mb 3] [--show 20]

With --gold, the first results are F1 scores of sentence ends. The text consists of gold sentences in several languages,
joined by a space (Chinese without a space). They are printed for a detected and for a known language, and for text in
which gold sentences without a final mark have their own lines.

FOLDER contains English text, as files of WikiExtractor or plain text. The English model of NLTK is a download, so Punkt
is trained here: without labels as in the paper, on every other file, and with common titles as abbreviations. The other
files are the test set. Both systems split the same normalized paragraphs.

A boundary is the end of a sentence inside a paragraph. A decision is a boundary of either system, or a mark . ! ?
before white space. Punkt always ends a sentence at ! and ?. Sesame does not if a lowercase letter follows ("Why?" she
asked), so these decisions are counted separately.
"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final

from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTrainer

from preprocessing.text import normalize, sentences

TITLES: Final = "mr mrs ms messrs mme mlle dr st prof rev gen capt col sgt lt no vs ca vol pp fig"
TAG: Final = re.compile(r"</?doc[^>]*>")
CANDIDATE: Final = re.compile(r"[.!?]+[^\w\s]*(?=\s)")
ASKED: Final = re.compile(r"[!?][^\w\s]*$")
MARKED: Final = re.compile(r"[.!?\u2026:\u0589\u3002\uff01\uff1f]\W*$")
SMALL: Final = re.compile(r"\s*[^\w\s]*[a-z]")


def read(paths: Sequence[Path], mb: float) -> list[str]:
    """The unchanged texts of the first files, until they have `mb` MB."""
    texts, size = list[str](), 0
    for path in paths:
        if size < mb * 1e6:
            texts.append(TAG.sub("", path.read_text(encoding="utf-8", errors="replace")))
            size += len(texts[-1])
    return texts


def train(texts: Iterable[str]) -> PunktSentenceTokenizer:
    """Train Punkt on these texts."""
    trainer = PunktTrainer()
    trainer.train("\n".join(map(normalize, texts)))
    parameters = trainer.get_params()
    parameters.abbrev_types |= set(TITLES.split())
    return PunktSentenceTokenizer(parameters)


def compare(paragraph: str, punkt: PunktSentenceTokenizer) -> tuple[Counter[str], list[str]]:
    """Counts of the decisions by result, and the text around differences (+: only Sesame, -: only Punkt)."""
    last = {len(paragraph)}
    ours = set(accumulate(map(len, sentences(paragraph)))) - last
    theirs = {end for _, end in punkt.span_tokenize(paragraph)} - last
    asked = {
        end
        for end in theirs - ours
        if ASKED.search(paragraph[max(0, end - 5) : end]) and SMALL.match(paragraph[end : end + 5])
    }
    candidates = {match.end() for match in CANDIDATE.finditer(paragraph)}
    counts = Counter(
        both=len(ours & theirs),
        ours=len(ours - theirs),
        theirs=len(theirs - ours - asked),
        asked=len(asked),
        neither=len(candidates - ours - theirs),
    )
    differ = [
        f"{'+' if end in ours else '-'} {paragraph[max(0, end - 40) : end]!r} | {paragraph[end : end + 30]!r}"
        for end in sorted((ours ^ theirs) - asked)
    ]
    return counts, differ


def speed(work: Callable[[str], object], texts: Sequence[str]) -> float:
    """Speed in MB of UTF-8 per second of CPU time, the best of five runs."""
    times = []
    for _ in range(5):
        start = time.process_time()
        for text in texts:
            work(text)
        times.append(time.process_time() - start)
    return sum(len(text.encode()) for text in texts) / min(times) / 1e6


def gold(folder: Path) -> dict[str, list[str]]:
    """Gold sentences by language."""
    found = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in (folder / "sentences").glob("*.txt")}
    chinese = (folder / "zh" / "zh_seg" / "zh_gsdsimp-ud-test.conllu").read_text(encoding="utf-8").splitlines()
    found["zh"] = [line.removeprefix("# text = ") for line in chinese if line.startswith("# text = ")]
    return {language: list(filter(None, lines)) for language, lines in sorted(found.items())}


def ends_of(parts: Iterable[str]) -> set[int]:
    """The ends of the sentences in a text, without the last one."""
    return set(list(accumulate(map(len, parts)))[:-1])


def scored(found: set[int], expected: set[int]) -> str:
    """Precision, recall and F1 as text."""
    both = len(found & expected)
    return f"P {both / len(found):.4f} R {both / len(expected):.4f} F1 {2 * both / (len(found) + len(expected)):.4f}"


def against_gold(folder: Path) -> None:
    """Print the scores against gold sentences for each language."""
    for language, lines in gold(folder).items():
        blank = "" if language == "zh" else " "
        joined = [lines[0], *(blank + line for line in lines[1:])]
        text = "".join(joined)
        alone = [MARKED.search(line) is None for line in lines]
        breaks = [False, *(before or here for before, here in pairwise(alone))]
        apart = [f"\n{line}" if new else whole for line, whole, new in zip(lines, joined, breaks, strict=True)]
        print(f"{language}: detected {scored(ends_of(sentences(text)), ends_of(joined))}", end="; ")
        print(f"known {scored(ends_of(sentences(text, language)), ends_of(joined))}", end="; ")
        print(f"on lines {scored(ends_of(sentences(''.join(apart), language)), ends_of(apart))}", end="; ")
        print(f"median {sorted(map(len, sentences(text)))[len(sentences(text)) // 2]}", end="; ")
        print(f"{speed(sentences, [text]):.0f} MB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train-mb", type=float, default=8)
    parser.add_argument("--test-mb", type=float, default=3)
    parser.add_argument("--show", type=int, default=0, help="number of differences to print")
    parser.add_argument("--gold", type=Path, help="directory with sentences/ and zh/")
    args = parser.parse_args()
    if args.gold:
        against_gold(args.gold)
    paths = sorted(path for path in args.folder.rglob("*") if path.is_file())
    raw = read(paths[1::2], args.test_mb)
    texts = [normalize(text) for text in raw]
    print(f"normalize {speed(normalize, raw):.0f} MB/s, sentences {speed(sentences, texts):.0f} MB/s")

    punkt = train(read(paths[::2], args.train_mb))
    total, differ = Counter[str](), list[str]()
    for paragraph in (paragraph for text in texts for paragraph in text.split("\n\n")):
        counts, lines = compare(paragraph, punkt)
        total += counts
        differ += lines
    for name, asked in (("all", total["asked"]), ("without ! and ? before a lowercase letter", 0)):
        apart = total["ours"] + total["theirs"] + asked
        f1 = 2 * total["both"] / (2 * total["both"] + apart)
        accuracy = 1 - apart / (apart + total["both"] + total["neither"])
        print(f"{name}: F1 of boundaries {f1:.4f}, equal decisions {accuracy:.4f}")
    print(dict(total))
    for line in differ[:: max(1, len(differ) // args.show)] if args.show else []:
        print(line)


if __name__ == "__main__":
    main()
