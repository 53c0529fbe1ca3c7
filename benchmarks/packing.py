"""Fill and cuts of packed sequences: best fit against contiguous tokens, on the training split of a corpus.

    python -m benchmarks.packing CORPUS [--length 512 1024 8192]

CORPUS is a directory with shards. A sequence of causal language modeling has one token more than the model reads. A
sequence is full if it has this number of tokens. A document is cut if several sequences have tokens of it.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np

from preprocessing.packing import BestFit, Contiguous, Packing, PackingPlan, lines_of, plans_of
from preprocessing.rng import key
from preprocessing.schema import Ints
from preprocessing.shards import Shard, TokenStore

LOOKAHEAD = 1
HEAD = "| length | packing | plans | sequences | filled | documents cut | seconds |\n|---|---|---|---|---|---|---|"


def measure(packing: Packing, shards: Sequence[Shard], length: int) -> str:
    """A line of the table."""
    start = time.process_time()
    lines = lines_of(packing, shards)
    plans = plans_of(packing, lines, length, LOOKAHEAD, lambda k: key(0, "segment").at(0, k))
    seconds = time.process_time() - start
    num_rows = sum(map(len, plans))
    tokens = sum(int((plan.stop_RP.astype(np.int64) - plan.start_RP).sum()) for plan in plans)
    cut = sum(count_cut(plan, line) for plan, line in zip(plans, lines, strict=True))
    documents = sum(plan.counts["documents"] for plan in plans)
    filled, share = tokens / (num_rows * (length + LOOKAHEAD)), cut / documents
    return f"| {length:,} | {packing.kind} | {len(plans)} | {num_rows:,} | {filled:.3%} | {share:.2%} | {seconds:.2f} |"


def count_cut(plan: PackingPlan, line: Shard) -> int:
    """The number of documents of a line with tokens in several sequences."""
    if "cut_documents" in plan.counts:
        return plan.counts["cut_documents"]
    first_N: Ints = np.append(0, plan.separator_at_N[:-1] + 1)  # on the line with separators
    last_N = plan.separator_at_N - 1
    row_2N = np.searchsorted(plan.start_RP[:, 0].astype(np.int64), np.stack([first_N, last_N]), side="right")
    return int((row_2N[0] != row_2N[1]).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--length", type=int, nargs="+", default=[512, 1024, 8192])
    arguments = parser.parse_args()
    shards = TokenStore.open(arguments.corpus, "train").shards
    tokens, documents = (sum(int(one.offset_N1[-1]) for one in shards), sum(len(one.offset_N1) - 1 for one in shards))
    print(f"{len(shards)} shards, {documents:,} documents, {tokens:,} tokens\n\n{HEAD}")
    for length in arguments.length:
        for packing in (BestFit(), Contiguous(unit="token")):
            print(measure(packing, shards, length), flush=True)


if __name__ == "__main__":
    main()
