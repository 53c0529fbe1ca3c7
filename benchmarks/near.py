"""Recall and precision of near-duplicate detection, on a corpus with planted near-duplicates; and its speed.

    python benchmarks/near.py FOLDER            # a directory of text, for example the output of WikiExtractor
    python benchmarks/near.py --speed FOLDER    # MB/s by size of documents, and the time of each step per document

A twentieth of the documents gets a near-duplicate with a Jaccard similarity (5-grams of words) between 0.8 and 1.
Another twentieth gets a decoy with a similarity between 0.3 and 0.5, which is no duplicate. Documents that are already
near-duplicates are removed first, so that the planted documents are the only near-duplicates.

The speed is that of one process, in CPU time: signatures of documents of several sizes, and for made-up signatures, of
which one in a hundred repeats another, each step after them. The last lines are a plan for 1 TB, by these rates.
"""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.readers import JsonlReader, piece_records, plan_splits, sniff
from pipeline.spec import Clean, Corpus, Dedup
from pipeline.steps import TextDirectory, read_text
from pipeline.steps.dedup import (
    ADDRESS,
    EDGE,
    bands,
    edges,
    in_order,
    near_file,
    select_similar_edges,
    without_near,
)
from pipeline.steps.output_folder import seal
from preprocessing.files import npy
from preprocessing.text import hash_bands, sign_texts, text_key
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


def read_documents(source: str) -> Iterator[str]:
    """The texts of a source, not cleaned."""
    reader = sniff(source)
    for split in plan_splits([reader]):
        yield from (record.text for piece in split.pieces for record in piece_records(reader, piece, 1 << 30))


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


SIZES = (134, 250, 500, 1_000, 2_500, 10_000)  # bytes of a document
BATCH_BYTES = 4 << 20  # as in a file of cleaned text
TB_DOCUMENTS = 2e9  # of 500 bytes


def of_size(texts: Iterable[str], size: int, total: int) -> list[str]:
    """Documents of about `size` bytes, runs of words of the texts, `total` bytes in all."""
    joined = " ".join(texts).split(" ")
    per_document = max(1, round(size / (sum(map(len, joined[:10_000])) / len(joined[:10_000]) + 1)))
    found = (" ".join(joined[at : at + per_document]) for at in range(0, len(joined), per_document))
    return list(islice(found, total // size))


def sign_speed(texts: list[str], size: int) -> float:
    """MB/s of signatures and hashes of bands, for a batch of documents of this size."""
    documents = of_size(texts, size, BATCH_BYTES)
    num_bytes = sum(len(document.encode()) for document in documents)
    seconds = list[float]()
    for _ in range(5):
        start = time.process_time()
        signature_NP, _ = sign_texts(documents, NEAR.ngram_size, NEAR.num_bands * NEAR.rows_per_band)
        hash_bands(signature_NP, NEAR.num_bands)
        seconds.append(time.process_time() - start)
    return num_bytes / min(seconds) / 1e6


def step_seconds(folder: Path, num: int) -> dict[str, float]:
    """CPU seconds of each step after the signatures, for `num` made-up documents."""
    rng = np.random.default_rng(0)
    width = NEAR.num_bands * NEAR.rows_per_band
    signed_N = np.empty(num, [("high", ">u8"), ("low", ">u8"), ("signature", "<u4", (width,))])
    signed_N["high"], signed_N["low"] = rng.integers(0, 1 << 63, (2, num), np.uint64)
    signed_N["signature"] = rng.integers(0, 1 << 32, (num, width), np.uint32)
    signed_N["signature"][: num // 100] = signed_N["signature"][num // 100 : 2 * (num // 100)]
    part, marks = folder / "text-0.arrow", [time.process_time()]
    part.touch()
    near_file(part).write_bytes(npy(signed_N))
    seal(near_file(part), near=[NEAR.ngram_size, width], of=part.name)
    marks[0] = time.process_time()
    groups = defaultdict[int, list[bytes]](list)
    for group, block in bands(part, 0, NEAR):
        groups[group].append(block)
    marks.append(time.process_time())
    found = [edges(group) for group in groups.items()]
    marks.append(time.process_time())
    edge_E = select_similar_edges(np.frombuffer(b"".join(found), EDGE), {0: part}, NEAR.min_similarity)
    marks.append(time.process_time())
    address_N = np.zeros(num, ADDRESS)
    address_N["high"], address_N["low"], address_N["row"] = signed_N["high"], signed_N["low"], np.arange(num)
    address_N = in_order(address_N)
    marks.append(time.process_time())
    kept_N, _ = without_near(address_N, edge_E)
    marks.append(time.process_time())
    assert len(kept_N) == num - num // 100
    names = ("hashes of bands, groups", "pairs in a band", "similar pairs", "order of documents", "components")
    return dict(zip(names, np.diff(marks).tolist(), strict=True))


def print_speed(source: str, folder: Path) -> None:
    """Print the speed of signatures and of the steps after them, and the time that they would take for 1 TB."""
    texts = [text for _, text in zip(range(3_000), read_documents(source), strict=False)]
    sign_speed(texts, 500)  # compiles the kernels
    print(f"{'bytes of a document':<32}{'MB/s':>8}")
    rates = {size: sign_speed(texts, size) for size in SIZES}
    for size, rate in rates.items():
        print(f"{size:<32,}{rate:>8.1f}")
    num = 1_000_000
    seconds = step_seconds(folder, num)
    print(f"\n{'step':<32}{'CPU s':>8}  for {num:,} documents")
    for name, value in seconds.items():
        print(f"{name:<32}{value:>8.2f}")
    parallel = sum(seconds[name] for name in ("hashes of bands, groups", "pairs in a band"))
    alone = sum(seconds.values()) - parallel
    hours = TB_DOCUMENTS / num / 3600
    print(f"\n1 TB, {TB_DOCUMENTS:.0e} documents of 500 bytes, in core hours:")
    print(f"{'signatures':<32}{1e6 / rates[500] / 3600:>8.2f}  on all cores")
    print(f"{'bands and pairs':<32}{parallel * hours:>8.2f}  on all cores, without Beam's shuffle")
    print(f"{'similar pairs, order, components':<32}{alone * hours:>8.2f}  on one core")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--speed", action="store_true", help="measure the speed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if args.speed:
            print_speed(args.folder, Path(scratch))
            raise SystemExit
        for name, value in measure(args.folder, Path(scratch)).items():
            print(f"{name:<24}{value:,.4g}")
