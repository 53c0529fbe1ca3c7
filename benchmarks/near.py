"""Recall and precision of near-duplicate detection, on a corpus with planted near-duplicates.

    python benchmarks/near.py FOLDER        # a directory of text, for example the output of WikiExtractor

A twentieth of the documents gets a near-duplicate with a Jaccard similarity (5-grams of words) between 0.8 and 1.
Another twentieth gets a decoy with a similarity between 0.3 and 0.5, which is no duplicate. Documents that are already
near-duplicates are removed first, so that the planted documents are the only near-duplicates.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.readers import JsonlReader, sniff
from pipeline.spec import Clean, Corpus, Dedup
from pipeline.steps import TextDirectory, read_text
from preprocessing.text import text_key
from preprocessing.text.minhash import jaccard

SHARE = 20  # one document in SHARE gets a near-duplicate, another one a decoy
NEAR = Dedup(minhash=True)
HERE = ("--direct_running_mode=in_memory",)


def edited(text: str, similarity: float, rng: np.random.Generator) -> str:
    """A copy of a text with some words replaced, in runs of three, for this Jaccard similarity of the 5-grams."""
    words = text.split(" ")
    share = (1 - similarity) / (
        1 + similarity
    )  # fraction of the 5-grams of each text that the other text does not have
    for at in rng.integers(
        len(words), size=max(1, round(share * len(words) / 7))
    ):  # a run of 3 words changes 7 5-grams
        words[at : at + 3] = [f"edit{number}" for number in rng.integers(10**6, size=3)]
    return " ".join(words)


def unlike(source: str, folder: Path) -> list[str]:
    """The documents of a source that have no near-duplicate."""
    texts = read_text(Corpus(name="plain", sources=(sniff(source),), dedup=NEAR), folder / "plain", HERE)
    touched = {key for repeat in repeats(texts) for key in (repeat["key"], repeat["kept_key"])}
    found = [document.text for document in texts.documents(0, texts.ledger.kept.documents)]
    return [text for text in found if text_key(text).hex() not in touched and len(text.split()) >= 50]


def repeats(texts: TextDirectory) -> list[dict[str, str]]:
    """The duplicates that were found, with the keys of both documents."""
    with pa.memory_map(str(texts.folder / "duplicates.arrow")) as file:
        return pa.ipc.open_file(file).read_all().to_pylist()


def measure(source: str, folder: Path) -> dict[str, float]:
    """Recall, precision and time of the detection."""
    originals = unlike(source, folder)
    rng = np.random.default_rng(0)
    num = len(originals) // SHARE
    copies = [edited(text, rng.uniform(0.8, 1), rng) for text in originals[:num]]
    decoys = [edited(text, rng.uniform(0.3, 0.5), rng) for text in originals[num : 2 * num]]
    similarity = [jaccard(one, other, NEAR.ngram_size) for one, other in zip(originals, copies, strict=False)]
    (folder / "planted.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in [*originals, *copies, *decoys])
    )
    start = time.perf_counter()
    corpus = Corpus(
        name="planted",
        sources=(JsonlReader(path=str(folder / "planted.jsonl")),),
        dedup=NEAR,
        clean=Clean(fix_text=False),
    )
    found = repeats(read_text(corpus, folder / "planted", HERE))
    seconds = time.perf_counter() - start
    found_pairs = {frozenset((repeat["key"], repeat["kept_key"])) for repeat in found}
    pairs = [frozenset(text_key(text).hex() for text in pair) for pair in zip(originals, copies, strict=False)]
    wanted = [pair for pair, similar in zip(pairs, similarity, strict=True) if similar >= 0.8]
    return {
        "documents": len(originals),
        "planted with J >= 0.8": len(wanted),
        "decoys": len(decoys),
        "recall": sum(pair in found_pairs for pair in wanted) / len(wanted),
        "precision": sum(pair in set(pairs) for pair in found_pairs) / len(found_pairs),
        "seconds": seconds,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    with tempfile.TemporaryDirectory() as scratch:
        for name, value in measure(parser.parse_args().folder, Path(scratch)).items():
            print(f"{name:<24}{value:,.4g}")
