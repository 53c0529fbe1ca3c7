"""Speed of the encoders of documents on one core, beside `tokenizers`, in the same run.

    python -m benchmarks.encode [--shared FOLDER] [--mb 8] [--rounds 3] [--write]

The text is English (articles of Wikipedia and novels), Chinese, and a mixture of scripts. Each round encodes it with
each encoder in batches of 2^18 characters, as a corpus job does. `cold` starts with a new encoder, `warm` encodes the
same text again. The figures are medians of CPU time. All encoders return the same IDs, which is checked in each round.
sentencepiece is the reference for its own models, which `tokenizers` does not encode exactly.
"""

import argparse
import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}  # before the packages start threads

import numpy as np
from tokenizers import Tokenizer

from benchmarks.workers import hardware, now
from preprocessing.tokenization import ByteLevelBPE, TokenizerSpec, Unigram, Vocab, WordPiece, train
from preprocessing.tokenization.encoders import BatchEncoder, ListEncoder, choose_encoder, open_encoder

AT_ONCE: Final = 1 << 18  # characters
ARTICLE: Final = re.compile(r"<doc[^>]*>\n?(.*?)</doc>", re.DOTALL)
NUM_TOKENS: Final = 30_000
GOALS: Final = {  # least ratios of a new encoder to tokenizers
    ("wordpiece", "English"): 20,
    ("wordpiece", "mixed"): 12,
    ("wordpiece", "Chinese"): 5,
    ("byte_level_bpe", "English"): 40,
    ("byte_level_bpe", "mixed"): 40,
    ("byte_level_bpe", "Chinese"): 13,
}


def read_archive(path: Path, size: int) -> list[str]:
    """The articles or files of an archive, up to `size` bytes of text."""
    found, total = list[str](), 0
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is None:
                continue
            text = file.read().decode("utf-8", "replace")
            for document in ARTICLE.findall(text) or [text]:
                found.append(document.strip())
                total += len(found[-1].encode())
                if total >= size:
                    return found
    return found


def read_texts(shared: Path, size: int) -> dict[str, list[str]]:
    """Documents of each kind of text, about `size` bytes of each."""
    text = shared / "data" / "text"
    english = read_archive(text / "enwiki2015_AA.tar.xz", size // 2)
    english += read_archive(text / "novels100.tar.bz2", size // 2)
    chinese = read_archive(shared / "data" / "zh" / "zhwiki_AA00-49.tar.bz2", size)
    others = [path.read_text(encoding="utf-8") for path in sorted((shared / "data" / "sentences").glob("*.txt"))]
    lines = [line for document in others for line in document.split("\n") if line]
    mixed = [*lines, *english[: len(english) // 4], *chinese[: len(chinese) // 4]]
    order = np.random.Generator(np.random.Philox(0)).permutation(len(mixed))
    return {"English": english, "Chinese": chinese, "mixed": [mixed[place] for place in order]}


def cut_batches(documents: Sequence[str]) -> list[list[str]]:
    batches, used = [list[str]()], 0
    for document in documents:
        batches[-1].append(document)
        used += len(document)
        if used >= AT_ONCE:
            batches, used = [*batches, []], 0
    return [batch for batch in batches if batch]


def open_all(vocab: Vocab) -> dict[str, Callable[[], BatchEncoder]]:
    """A function for each encoder of this tokenizer, which opens a new one; the reference is first."""
    files = vocab.files

    def open_library() -> BatchEncoder:
        tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
        tokenizer.encode_special_tokens = True
        return ListEncoder(
            lambda texts: [each.ids for each in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        )

    found: dict[str, Callable[[], BatchEncoder]] = {"tokenizers": open_library}
    if "spiece.model" in files:
        return found | {"sentencepiece": lambda: ListEncoder(Vocab._from_files(files)._encode)}
    if name := choose_encoder(json.loads(files["tokenizer.json"])):
        found[name] = lambda: open_encoder(name, files["tokenizer.json"], open_library())
    return found


def time_encoder(encoder: BatchEncoder, batches: Sequence[list[str]]) -> tuple[float, Any]:
    """CPU seconds for all batches, and the IDs of the last one."""
    began, last = time.process_time(), None
    for batch in batches:
        last = encoder.encode(batch)
    return time.process_time() - began, last


def measure(vocab: Vocab, documents: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the median speeds of each encoder."""
    batches, size = cut_batches(documents), sum(len(document.encode()) for document in documents)
    seconds = dict[tuple[str, str], list[float]]()
    openers = open_all(vocab)
    for number in range(rounds):
        ids = dict[str, Any]()
        for name in sorted(openers, reverse=bool(number % 2)):
            encoder = openers[name]()
            for state in ("cold", "warm"):
                spent, ids[name] = time_encoder(encoder, batches)
                seconds.setdefault((name, state), []).append(spent)
        if vocab.kind != "unigram":  # tokenizers does not encode its models exactly
            first, *others = ids.values()
            assert all(np.array_equal(first[0], other[0]) for other in others), "encoders return different IDs"
    for name in openers:
        cold, warm = (median(seconds[name, state]) for state in ("cold", "warm"))
        reference = median(seconds["tokenizers", "cold"])
        yield {"encoder": name, "mb_per_s": size / cold / 1e6, "ratio": reference / cold, "warm": reference / warm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path(__file__).resolve().parents[2] / "shared")
    parser.add_argument("--mb", type=float, default=8.0, help="text of each kind, in MB [8]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write the table to benchmarks/results")
    given = parser.parse_args()
    texts = read_texts(given.shared, int(given.mb * 1e6))
    specs: list[TokenizerSpec] = [WordPiece(vocab_size=NUM_TOKENS), ByteLevelBPE(vocab_size=NUM_TOKENS)]
    specs.append(Unigram(vocab_size=8_000))
    lines = [
        "# Encoders\n",
        f"{now()}, {hardware()}. `python -m benchmarks.encode --write`: {given.mb:g} MB of each kind of text,",
        f"medians of {given.rounds} rounds, CPU time of one core. Ratio: a new encoder to a new one of",
        "`tokenizers`, in the same run. Warm: the same text again.\n",
        "| tokenizer | text | encoder | MB/s | ratio | warm | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for spec in specs:
        for kind, documents in texts.items():
            vocab = train(spec, documents)
            for row in measure(vocab, documents, given.rounds):
                goal = GOALS.get((vocab.kind, kind), "") if row["encoder"] != "tokenizers" else ""
                lines.append(
                    f"| {vocab.kind} | {kind} | {row['encoder']} | {row['mb_per_s']:.1f} | {row['ratio']:.1f} "
                    f"| {row['warm']:.1f} | {goal} |"
                )
                print(lines[-1], flush=True)
    if given.write:
        folder = Path(__file__).parent / "results"
        (folder / f"encode-{now()[:10]}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
