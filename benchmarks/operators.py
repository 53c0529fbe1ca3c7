"""Operators of a training step, counted on a CPU: what a GPU would be asked to launch, copy and wait for.

    python -m benchmarks.operators [NAME ...] [--rows N] [--length N] [--json]

A step of each recipe at its published size, in bf16, with two micro-batches of the shape that one GPU would have
(`engine.padding: fixed`), in the engine of one process. An operator is a call of torch's dispatcher that computes;
views and allocations are none. A multi-tensor operator (_foreach, _fused) counts once; on a GPU it is a few kernels.

"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.step import made_up, small_vocab
from orchestration.config import load
from preprocessing.collate import collate_unpadded
from preprocessing.fixed_shapes import RowSizes, choose_shape, make_batches
from preprocessing.tokenization import table_rows
from training.architectures.dropout import Dropout
from training.engines import LocalEngine
from training.model import Model
from training.specs import EngineSettings

NAMES: Final = ("bert_base", "gpt2")
WITHOUT_WORK: Final = frozenset(
    {"view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "slice", "select", "split", "unbind"}
    | {"split_with_sizes", "detach", "alias", "as_strided", "unsqueeze", "squeeze", "empty", "empty_like", "new_empty"}
    | {"empty_strided", "new_empty_strided", "is_pinned", "unfold", "record_stream", "lift_fresh", "chunk", "unflatten"}
)
READS: Final = ("_local_scalar_dense", "nonzero", "masked_select", "unique")


class Count(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in WITHOUT_WORK:
            self.calls[name] += 1
        return func(*args, **(kwargs or {}))

    def summary(self) -> dict[str, int]:
        copies = sum(self.calls[name] for name in ("copy_", "_to_copy", "clone", "_foreach_copy_"))
        gathers = sum(
            self.calls[name] for name in ("index_add_", "index_add", "index_select", "cat", "index", "gather")
        )
        reads = sum(count for name, count in self.calls.items() if name.startswith(READS) and name != "nonzero_static")
        return {"operators": self.calls.total(), "copies": copies, "gathers": gathers, "host reads": reads}


def count_step(name: str, rows: int, length: int) -> dict[str, dict[str, int]]:
    """The operators of a micro-batch, of a step's update, and of a step with two micro-batches."""
    recipe = load(name)
    setattr(Dropout, "forward", nn.Dropout.forward)  # noqa: B010  # as on a GPU
    with tempfile.TemporaryDirectory() as room:
        vocab = small_vocab(recipe, Path(room))
        sequences = made_up(recipe, vocab, 2 * rows, length)
    shape = choose_shape(RowSizes.of(collate_unpadded(sequences)), 2 * rows, length, rows * length)
    model = Model(recipe.model, recipe.losses, table_rows(recipe.data.tokenizer), seed=0).train()
    engine = LocalEngine(model, recipe.optimizer, EngineSettings(precision="bf16"))
    batches, counts = make_batches(collate_unpadded(sequences), shape, vocab.pad or 0), dict[str, dict[str, int]]()
    for turn in range(2):  # the first step creates the states of the optimizer
        for number, (_, scores) in enumerate(_iterate(engine, batches)):
            with Count() as count:
                engine.backward(torch.stack([score.loss for score in scores.values()]).sum())
            counts[f"backward {number + 1}"] = count.summary()
        with Count() as count:
            engine.step(1e-5)
        counts["update"] = count.summary()
        if turn:
            forward = counts["forward"] = _forward_counts[-1]
            micro = {key: forward[key] + counts["backward 2"][key] for key in forward}
            counts["step"] = {key: 2 * micro[key] + counts["update"][key] for key in micro}
    return counts


_forward_counts: list[dict[str, int]] = []


def _iterate(engine: Any, batches: Any) -> Any:
    for batch in batches:
        with Count() as count:
            scores = engine.forward(batch)
        _forward_counts.append(count.summary())
        yield batch, scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"recipes [{' '.join(NAMES)}]")
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args()
    found = {name: count_step(name, args.rows, args.length) for name in args.names or NAMES}
    if args.json:
        print(json.dumps(found, indent=1))
        return
    columns = ("operators", "copies", "gathers", "host reads")
    print(f"{'':28}" + "".join(f"{column:>12}" for column in columns))
    for name, parts in found.items():
        for part in ("forward", "backward 1", "backward 2", "update", "step"):
            print(f"{name:16}{part:12}" + "".join(f"{parts[part][column]:12}" for column in columns))


if __name__ == "__main__":
    main()
