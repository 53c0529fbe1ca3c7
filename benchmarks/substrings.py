"""Removal of repeated substrings: recall and precision against a search of all windows, and the cost of the step.

    python benchmarks/substrings.py DIRECTORY [--plant 400] [--mb 20]

DIRECTORY has text files. The first `--mb` MB of them become documents of about 4 kB, and `--plant` passages of 30 to
200 tokens are copied from a document into another. Then the text job removes repeated substrings of 50 tokens.
"""

import argparse
import re
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import xxhash

from pipeline.readers import TextReader
from pipeline.spec import Clean, Corpus, Dedup
from pipeline.steps import TextDirectory, read_text
from preprocessing.text import find_tokens, normalize

LEAST, CHARS = 50, 4000
HERE = ("--direct_running_mode=in_memory",)


def read_documents(folder: Path, most: int) -> list[str]:
    """Return documents of whole paragraphs with about CHARS characters, each on one line."""
    found, size, parts = list[str](), 0, list[str]()
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        for line in re.sub(r"</?doc[^>]*>", "", path.read_text(errors="replace")).splitlines():
            parts.append(line)
            if sum(map(len, parts)) >= CHARS:
                found.append(normalize(" ".join(parts)))
                size, parts = size + len(found[-1]), []
                if size >= most:
                    return found
    return found


def plant(texts: list[str], count: int) -> list[str]:
    """Copy passages into other documents; return them. `texts` changes in place."""
    rng, passages = np.random.default_rng(32), list[str]()
    for length in rng.integers(30, 200, count).tolist():
        donor, receiver = rng.choice(len(texts), 2, replace=False).tolist()
        words, target = texts[donor].split(" "), texts[receiver].split(" ")
        start, place = int(rng.integers(max(1, len(words) - length))), int(rng.integers(len(target)))
        passages.append(" ".join(words[start : start + length]))
        texts[receiver] = " ".join([*target[:place], passages[-1], *target[place:]])
    return passages


def windows_of(text: str) -> Iterator[bytes]:
    """Return a 128-bit hash of each window of LEAST tokens."""
    tokens = find_tokens(text)
    words = [text[start:stop] for start, stop in zip(tokens.start_T.tolist(), tokens.stop_T.tolist(), strict=True)]
    return (xxhash.xxh3_128_digest(" ".join(words[at : at + LEAST]).encode()) for at in range(len(words) - LEAST + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--plant", type=int, default=400)
    parser.add_argument("--mb", type=float, default=20)
    given = parser.parse_args()
    texts = read_documents(given.directory, int(given.mb * 1e6))
    passages = plant(texts, given.plant)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in.txt").write_text("".join(f"{text}\n" for text in texts))
        source = TextReader(path=f"{folder}/in.txt", document_unit="line")
        plain = Corpus(name="plain", sources=(source,), clean=Clean(fix_text=False))
        seconds, made = dict[str, float](), dict[str, TextDirectory]()
        for name, least in (("without", 0), ("with", LEAST)):
            start = time.process_time()
            corpus = replace(plain, dedup=Dedup(substring_min_tokens=least))
            made[name] = read_text(corpus, Path(folder) / name, HERE)
            seconds[name] = time.process_time() - start
        found = made["with"]
        left = [document.text for document in found.documents(0, found.ledger.kept.documents)]
    before, after = dict[bytes, int](), dict[bytes, int]()
    for counts, some in ((before, texts), (after, left)):
        for text in some:
            for window in windows_of(text):
                counts[window] = counts.get(window, 0) + 1
    repeated = {window for window, count in before.items() if count > 1}
    size = found.ledger.seen.bytes / 1e6
    long_passages = [passage for passage in passages if len(find_tokens(passage).hash_T) >= LEAST]
    gone = sum(sum(passage in text for text in left) < 2 for passage in long_passages)
    short = [passage for passage in passages if len(find_tokens(passage).hash_T) < LEAST]
    again = sum(after.get(window, 0) > 1 for window in repeated)
    joined = sum(count > 1 for count in after.values()) - again
    short_gone = sum(sum(passage in text for text in left) < 2 for passage in short)
    print(f"{len(texts):,} documents, {size:.1f} MB, {sum(before.values()):,} windows of {LEAST} tokens")
    print(f"windows that occur several times: {len(repeated):,}; of these, after the step: {again:,}")
    print(f"windows that occur several times only because the text between was removed: {joined:,}")
    print(f"planted passages of {LEAST} or more tokens: {len(long_passages):,}; not twice any more: {gone:,}")
    print(f"shorter planted passages: {len(short):,}; not twice any more: {short_gone:,}")
    removed, size_removed = found.substrings, found.ledger.dropped["repeated_substring"].bytes
    print(f"removed: {removed['removed']:,} substrings of {removed['documents']:,} documents, {size_removed:,} bytes")
    cost = (seconds["with"] - seconds["without"]) / size
    print(f"CPU seconds: {seconds['without']:.1f} without the step, {seconds['with']:.1f} with it, {cost:.3f} per MB")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB, with the check")


if __name__ == "__main__":
    main()
