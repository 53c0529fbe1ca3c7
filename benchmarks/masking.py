"""Speed of building training sequences on one core: masking, packing plans, order, and whole batches of 256 x 512.

    python benchmarks/masking.py [--json]

Each result is the best of several runs, in CPU time of this process, on synthetic text with 1.4 tokens per word.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from preprocessing.collate import collate_padded, collate_unpadded
from preprocessing.masking import Masking, NoMasking, SpanMasking, TokenMasking, WholeWordMasking
from preprocessing.objectives import CausalLM, MaskedLM, Objective
from preprocessing.order import shuffle
from preprocessing.packing import Contiguous, Packing, SegmentPair
from preprocessing.rng import key
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Row

BATCH: Final = 256
LENGTH: Final = 512
OBJECTIVES: Final[dict[str, tuple[Masking, Objective]]] = {
    "token, mlm (BERT, RoBERTa)": (TokenMasking(), MaskedLM()),
    "whole_word, mlm": (WholeWordMasking(), MaskedLM()),
    "span, mlm by span (SpanBERT)": (SpanMasking(), MaskedLM(replace_unit="span")),
    "nothing, shift (GPT)": (NoMasking(), CausalLM()),
}
SEGMENTS: Final[dict[str, Packing]] = {
    "packed sentences": Contiguous(unit="sentence"),
    "packed tokens": Contiguous(unit="token"),
    "pair random": SegmentPair(negatives="random"),
    "pair swap": SegmentPair(negatives="swapped"),
}


@dataclass(frozen=True)
class Vocabulary:
    """Replaces preprocessing.tokenization.Vocab: the size and special tokens of BERT."""

    size: int = 30_522
    pad: int = 0
    cls: int = 101
    sep: int = 102
    mask: int = 103
    special_ids: tuple[int, ...] = (0, 100, 101, 102, 103)


@dataclass(frozen=True)
class Text:
    """Replaces preprocessing.shards.Shard: documents of 1 to 30 sentences of 3 to 59 tokens."""

    ids_T: np.ndarray
    offset_N1: np.ndarray
    sentence_at_M: np.ndarray
    starts_T: np.ndarray
    has_units: bool = False

    def word_starts(self, start: int, stop: int) -> np.ndarray:
        return self.starts_T[start:stop]


@dataclass(frozen=True)
class Corpus:
    """Replaces preprocessing.shards.TokenStore."""

    shards: tuple[Text, ...]
    folder: Path = Path("made-up")
    split: str = "train"
    manifest: dict[str, Any] = field(default_factory=dict)
    groups: tuple[()] = ()
    is_remote: bool = False


def make_text(num_documents: int) -> Text:
    rng = np.random.default_rng(0)
    sentences_N = rng.integers(1, 30, size=num_documents, endpoint=True)
    at_M1 = np.append(0, np.cumsum(rng.integers(3, 60, size=sentences_N.sum())))
    starts_T = rng.random(at_M1[-1]) < 0.7
    starts_T[at_M1[:-1]] = True
    ids_T = rng.integers(1000, 30_522, size=at_M1[-1]).astype(np.uint16)
    return Text(ids_T, at_M1[np.append(0, np.cumsum(sentences_N))], at_M1[:-1], starts_T)


def best_ms(work: Callable[[], object], runs: int = 7) -> float:
    """CPU time of the fastest run, in milliseconds."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def apply(masking: Masking, objective: Objective, rows: list[Row], vocab: Any) -> None:
    random = key(0, "masking")
    for sample, row in enumerate(rows):
        rng = random.at(0, sample)
        objective(row | {"hits": masking(row, rng)}, vocab, rng)


def make_rows(rows: ExampleDataset) -> None:
    for address in rows.addresses(0, BATCH):
        rows.row(*address)


def measure() -> list[dict[str, Any]]:
    vocab: Any = Vocabulary()
    small: Any = Corpus((make_text(2_000),))
    large: Any = make_text(52_000)
    figures: list[dict[str, Any]] = []

    def note(what: str, tokens: int, work: Callable[[], object], runs: int = 7) -> None:
        ms = best_ms(work, runs)
        figures.append(
            {"what": what, "ms": round(ms, 3), "mtokens_per_s": round(tokens / ms / 1e3, 1) if tokens else None}
        )

    plain = ExampleSpec(packing=SEGMENTS["packed sentences"], masking=NoMasking(), objective=CausalLM())
    packed = ExampleDataset(small, vocab, plain, LENGTH)
    rows = [packed.row(0, sample) for sample in range(BATCH)]
    num_tokens = sum(len(row["input_ids"]) for row in rows)
    for name, (masking, objective) in OBJECTIVES.items():
        note(f"masking and objective 256 x 512: {name}", num_tokens, partial(apply, masking, objective, rows, vocab))
    for name, segment in SEGMENTS.items():
        dataset = ExampleDataset(
            small, vocab, ExampleSpec(packing=segment, masking=WholeWordMasking(), objective=MaskedLM()), LENGTH
        )
        dataset.count(0)
        note(f"sequences 256 x 512, whole_word: {name}", BATCH * LENGTH, partial(make_rows, dataset))
    labeled = [row | {"labels": row["input_ids"]} for row in rows]
    note("collate 256 x 512: unpadded", num_tokens, lambda: collate_unpadded(labeled))
    note("collate 256 x 512: padded", num_tokens, lambda: collate_padded(labeled, LENGTH, pad=0))
    for name, segment in SEGMENTS.items():
        what = f"plan of {len(large.ids_T) / 1e6:.0f} M tokens, length 128: {name}"
        note(what, len(large.ids_T), partial(segment.plan, large, 128, 0, key(0, "segment").at(0, 0)), runs=3)
    note(
        "order: 4,096 samples out of 3,000,000,000",
        0,
        lambda: shuffle(np.arange(4096), 3 * 10**9, key(0, "order"), epoch=0),
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    as_json = parser.parse_args().json
    figures = measure()
    if as_json:
        print(json.dumps(figures, indent=1))
        return
    print(f"{'':66} {'ms':>9} {'Mtokens/s':>10}")
    for figure in figures:
        print(f"{figure['what']:66} {figure['ms']:9.2f} {figure['mtokens_per_s'] or '':>10}")


if __name__ == "__main__":
    main()
