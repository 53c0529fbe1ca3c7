"""Probes: accuracy on held-out text, measured on a model whose weights stay fixed.

    masked   accuracy of the model's own head on masked tokens
    pairs    accuracy of a linear classifier of sentence pairs, trained on the model's `summary` states

The examples are those that a run makes of the held-out split of its corpus. The probed model need not have been
trained on such examples, so models of different recipes are comparable (ALBERT, arXiv:1909.11942, table 5).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from preprocessing.collate import collate_unpadded
from preprocessing.errors import BadInput, DataError
from preprocessing.manifest import Manifest
from preprocessing.rows import ExampleDataset
from preprocessing.schema import IGNORE, Floats, Ints, Row
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.formats import load_weights
from training.model import Model
from training.run import Run

MOST_ROWS: Final = 2_048  # maximum sequences whose masked tokens are predicted
MOST_TRAIN, MOST_TEST = 4_096, 2_048  # maximum pairs to train the classifier, and to score it
FEWEST_PAIRS: Final = 30
BATCH: Final = 64


@dataclass(frozen=True)
class ProbeResult:
    """Accuracy and sample sizes."""

    accuracy: float
    fitted: int  # training pairs of the classifier; 0 without one
    scored: int  # test pairs, or masked tokens
    loss: float = 0.0  # nats per masked token


def load(weights: Path) -> Model:
    """Load the model of a finished run, with its heads, from the run's directory `weights`."""
    spec, state = load_weights(weights)
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0)
    assert state.keys() == dict(model.named_parameters()).keys()
    model.load_state_dict(state, strict=False)  # not strict: shared weights are stored under one name
    return model.eval()


def load_held_out(run: Run) -> ExampleDataset:
    """The examples that `run` makes of the test split of its corpus, or of the validation split if there is no test
    split.

    They do not depend on the seed of the run.
    """
    splits = Manifest.load(run.corpus).splits
    split = next((name for name in ("test", "validation") if name in splits), "")
    if not split:
        raise DataError(
            f"{run.corpus}: no text is held out; set test_ratio in the corpus file, and build the corpus again"
        )
    store = TokenStore.open(run.corpus, split)
    vocab = Vocab.load(store.vocab_dir, wanted=store.manifest.vocab["hash"])
    sampling = replace(run.sampling, seed=0, static_masks=0)
    return ExampleDataset(store, vocab, sampling, max(phase.seq_length for phase in run.phases))


@torch.no_grad()
def evaluate_masked_tokens(model: Model, rows: ExampleDataset) -> ProbeResult:
    """Accuracy and loss on the masked tokens of at most MOST_ROWS sequences.

    Raises BadInput if no loss of the model predicts masked tokens.
    """
    losses = [loss.kind for loss in model.spec.losses if loss.names_tokens and "bidirectional" in loss.sees]
    if not losses:
        raise BadInput("no loss of this model predicts masked tokens; probe a model with the loss masked_tokens")
    head, right, total, loss = model.heads[losses[0]], 0, 0, 0.0
    for batch in _batches([rows.row(*address) for address in rows.addresses(0, min(MOST_ROWS, rows.count(0)))]):
        score = head(model.trunk(batch), batch, model.trunk.table)
        right, total, loss = right + int(score.correct), total + score.count, loss + float(score.loss)
    return ProbeResult(right / max(1, total), 0, total, loss / max(1, total))


def pairs(model: Model, rows: ExampleDataset) -> ProbeResult:
    """Accuracy of a linear classifier of pairs, without masking.

    The last third of the text is used for scoring only. At most MOST_TRAIN and MOST_TEST pairs are used. Raises
    BadInput if the pairs have no label, and DataError if there are too few pairs.
    """
    segment = rows.sampling.packing
    if "next_sentence_label" not in segment.produced_columns:
        raise BadInput(f"examples of packing {segment.kind} have no label; use a run that sets packing.negatives")
    num_rows = rows.count(0)
    if num_rows < FEWEST_PAIRS:
        raise DataError(
            f"{rows.store.folder}: too few held-out pairs to probe: got {num_rows}, expected at least {FEWEST_PAIRS}; "
            "raise test_ratio in the corpus file"
        )
    num_train = num_rows * 2 // 3  # pairs are in the order of the text, so the two parts come from different documents
    order_N = np.r_[np.arange(num_train)[:MOST_TRAIN], np.arange(num_train, num_rows)[:MOST_TEST]]
    examples = [rows.row(0, int(i)) for i in order_N]
    label_N = np.array([row["next_sentence_label"] for row in examples], np.int64)
    fitted = min(num_train, MOST_TRAIN)
    return ProbeResult(fit_linear(summaries(model, examples), label_N, fitted), fitted, len(examples) - fitted)


@torch.no_grad()
def summaries(model: Model, rows: Sequence[Row]) -> Floats:
    """The model's summary state [N, D] of each sequence, with the original tokens in place of masked ones."""
    parts = [model.trunk.summary(batch) for batch in _batches([_unmask(row) for row in rows])]
    return torch.cat(parts).float().numpy()


def fit_linear(feature_ND: Floats, label_N: Ints, fitted: int) -> float:
    """Fit a logistic regression to the first `fitted` rows; return its accuracy on the others. It is deterministic.

    >>> fit_linear(np.tile([[-1.0], [1.0]], (20, 1)), np.tile([0, 1], 20), fitted=20)
    1.0
    """
    from sklearn.linear_model import LogisticRegression  # imported here, because the import takes two seconds
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=2_000))
    classifier.fit(feature_ND[:fitted], label_N[:fitted])
    return float(classifier.score(feature_ND[fitted:], label_N[fitted:]))


def _unmask(row: Row) -> Row:
    return row | {"input_ids": np.where(row["labels"] != IGNORE, row["labels"], row["input_ids"])}


def _batches(rows: Sequence[Row]) -> Iterator[Mapping[str, Tensor]]:
    for start in range(0, len(rows), BATCH):
        yield {name: torch.from_numpy(array) for name, array in collate_unpadded(rows[start : start + BATCH]).items()}
