"""Probes: what can be read off a trained net on held-out text, while its weights stay as they are.

    masked   share of the masked tokens that the net's own head predicts
    pairs    share of the pairs whose label a linear classifier reads off the net's `summary` of them

The rows are those that some run would make of its corpus' held-out split; the net need not have been trained on such
rows. That is what makes the nets of different recipes comparable (ALBERT, arXiv:1909.11942, table 5).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from preprocessing.collate import unpadded
from preprocessing.errors import BadInput, DataError
from preprocessing.manifest import Manifest
from preprocessing.rows import ExampleDataset
from preprocessing.schema import IGNORE, Floats, Ints, Row
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.formats import load_weights
from training.model import Model
from training.run import Run

MOST_ROWS: Final = 2_048  # whose masked tokens are predicted
MOST_TRAIN, MOST_TEST = 4_096, 2_048  # pairs that the classifier is fitted to, and those that it is scored on
FEWEST_PAIRS: Final = 30
BATCH: Final = 64


@dataclass(frozen=True)
class ProbeResult:
    """An accuracy, and on how much it rests."""

    accuracy: float
    fitted: int  # pairs; 0 where nothing is fitted
    scored: int  # pairs, or masked tokens
    loss: float = 0.0  # nats of a masked token


def load(weights: Path) -> Model:
    """The net of a finished run, from its folder `weights`, with its heads."""
    spec, state = load_weights(weights)
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0)
    assert state.keys() == dict(model.named_parameters()).keys()
    model.load_state_dict(state, strict=False)  # what is shared is named once
    return model.eval()


def held_out(run: Run) -> ExampleDataset:
    """The rows that `run` makes of the test split of its corpus, or of the validation split where it has no other.

    They do not depend on the seed of the run.
    """
    splits = Manifest.load(run.corpus).splits
    split = next((name for name in ("test", "validation") if name in splits), "")
    if not split:
        raise DataError(f"{run.corpus}: no text is held out; set test_ratio in its corpus file, and make it again")
    store = TokenStore.open(run.corpus, split)
    vocab = Vocab.load(store.vocab_dir, wanted=store.manifest.vocab["hash"])
    sampling = replace(run.sampling, seed=0, static_masks=0)
    return ExampleDataset(store, vocab, sampling, max(phase.seq_length for phase in run.phases))


@torch.no_grad()
def masked(model: Model, rows: ExampleDataset) -> ProbeResult:
    """Accuracy and loss on the masked tokens of at most MOST_ROWS rows; BadInput where no loss predicts any."""
    losses = [loss.kind for loss in model.spec.losses if loss.names_tokens and "bidirectional" in loss.sees]
    if not losses:
        raise BadInput("no loss of this net predicts masked tokens, so that they cannot be probed")
    head, right, total, loss = model.heads[losses[0]], 0, 0, 0.0
    for batch in _batches([rows.row(*address) for address in rows.addresses(0, min(MOST_ROWS, rows.count(0)))]):
        score = head(model.trunk(batch), batch, model.trunk.table)
        right, total, loss = right + int(score.correct), total + score.count, loss + float(score.loss)
    return ProbeResult(right / max(1, total), 0, total, loss / max(1, total))


def pairs(model: Model, rows: ExampleDataset) -> ProbeResult:
    """Accuracy of a linear classifier of pairs, with nothing masked; DataError where there are too few of them.

    A third of the text is for the score alone. No more pairs are taken than MOST_TRAIN and MOST_TEST.
    """
    segment = rows.sampling.packing
    if "next_sentence_label" not in segment.emits:
        raise BadInput(f"pairs of packing {segment.kind} have no label; use rows with one (packing.negatives)")
    num_rows = rows.count(0)
    if num_rows < FEWEST_PAIRS:
        raise DataError(f"{rows.store.folder}: {num_rows} held-out pairs are too few to probe; hold out more (test:)")
    seam = num_rows * 2 // 3  # rows follow the text: before it and behind it are other documents
    order_N = np.r_[np.arange(seam)[:MOST_TRAIN], np.arange(seam, num_rows)[:MOST_TEST]]
    found = [rows.row(0, int(i)) for i in order_N]
    label_N = np.array([row["next_sentence_label"] for row in found], np.int64)
    fitted = min(seam, MOST_TRAIN)
    return ProbeResult(fit_linear(summaries(model, found), label_N, fitted), fitted, len(found) - fitted)


@torch.no_grad()
def summaries(model: Model, rows: Sequence[Row]) -> Floats:
    """The net's state [N, D] of each row, with its masked tokens put back."""
    parts = [model.trunk.summary(batch) for batch in _batches([_revealed(row) for row in rows])]
    return torch.cat(parts).float().numpy()


def fit_linear(feature_ND: Floats, label_N: Ints, fitted: int) -> float:
    """Accuracy on the rows after the first `fitted` of a logistic regression on those; the same bits every time.

    >>> fit_linear(np.tile([[-1.0], [1.0]], (20, 1)), np.tile([0, 1], 20), fitted=20)
    1.0
    """
    from sklearn.linear_model import LogisticRegression  # two seconds, most of them for scipy.stats
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=2_000))
    classifier.fit(feature_ND[:fitted], label_N[:fitted])
    return float(classifier.score(feature_ND[fitted:], label_N[fitted:]))


def _revealed(row: Row) -> Row:
    return row | {"input_ids": np.where(row["labels"] != IGNORE, row["labels"], row["input_ids"])}


def _batches(rows: Sequence[Row]) -> Iterator[Mapping[str, Tensor]]:
    for start in range(0, len(rows), BATCH):
        yield {name: torch.from_numpy(array) for name, array in unpadded(rows[start : start + BATCH]).items()}
