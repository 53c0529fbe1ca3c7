"""The span boundary loss: which tokens it predicts from which states, and what the head computes."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from preprocessing.schema import IGNORE, Row
from tests.training.batches import collate_padded, collate_unpadded, random_rows
from training.losses import MaskedTokens, SpanBoundary
from training.losses.heads import boundary_targets
from training.model import Model
from training.specs import Encoder, LearnedPositions

ENCODER = Encoder(
    num_hidden_layers=1,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=64),
    hidden_dropout=0.0,
    attention_dropout=0.0,
    init_std=0.2,
)
LOSS = SpanBoundary()
VOCAB = 50


def row_of(labeled: Sequence[int], length: int) -> Row:
    """A sequence with targets at these positions."""
    labels_S = np.full(length, IGNORE)
    labels_S[list(labeled)] = np.arange(len(labeled)) + 7
    return {
        "input_ids": np.arange(length) % VOCAB,
        "token_type_ids": np.zeros(length, dtype=np.int8),
        "labels": labels_S,
    }


def predictions_of(rows: Sequence[Row], loss: SpanBoundary = LOSS) -> list[tuple[int, ...]]:
    """(position of the target, before, after, offset) of all predicted tokens."""
    batch = collate_unpadded(rows)
    here = boundary_targets(batch, loss.max_pair_targets)
    places = batch["targets_at"], here.before, here.after, here.offset
    return [tuple(place) for place in torch.stack(places, dim=1)[here.counts].tolist()]


def net(seed: int = 0, **keys: int) -> Model:
    """A model with random values in every tensor."""
    model = Model(ENCODER, (MaskedTokens(), SpanBoundary(**keys)), VOCAB, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.empty_like(tensor).normal_(0, 0.1, generator=generator))
    return model


def reference(model: Model, rows: Sequence[Row], positions: int) -> tuple[Tensor, int]:
    """The loss, computed sequence by sequence and span by span."""
    head, total, number = model.heads["span_boundary"], torch.zeros(()), 0
    for row in rows:
        hidden_SD, chosen = model.trunk(collate_unpadded([row])), row["labels"] != IGNORE
        edges = np.flatnonzero(np.diff(np.r_[False, chosen, False])).reshape(-1, 2)
        for start, stop in edges:
            if start < 2 or stop > len(chosen) - 2:
                continue
            for place in range(start, min(stop, start + positions)):
                x = torch.cat([hidden_SD[start - 1], hidden_SD[stop], head.offsets.weight[place - start]])
                x = head.first_norm(F.gelu(F.linear(x, head.first.weight, head.first.bias)))
                x = head.second_norm(F.gelu(F.linear(x, head.second.weight, head.second.bias)))
                logits_V = model.trunk.tokens.weight @ x + head.bias
                total, number = total - logits_V.log_softmax(-1)[row["labels"][place]], number + 1
    return total, number


def test_tokens_of_a_span_are_predicted_from_their_neighbors() -> None:
    assert predictions_of([row_of([3, 4, 7], 10)]) == [(3, 2, 5, 0), (4, 2, 5, 1), (7, 6, 8, 0)]


@pytest.mark.parametrize("labeled", [[1, 2], [7, 8], [0], [9], [1, 2, 3, 4, 5, 6, 7, 8]])
def test_a_span_next_to_the_first_or_last_special_token_is_not_predicted(labeled: list[int]) -> None:
    assert predictions_of([row_of(labeled, 10)]) == []


def test_adjacent_spans_are_one() -> None:
    assert [offset for *_, offset in predictions_of([row_of([2, 3, 4, 5], 10)])] == [0, 1, 2, 3]


def test_spans_of_two_consecutive_sequences_are_separate() -> None:
    assert predictions_of([row_of([5, 8, 9], 10), row_of([0, 1, 5], 10)]) == [(5, 4, 6, 0), (15, 14, 16, 0)]


def test_tokens_beyond_max_pair_targets_are_not_predicted() -> None:
    found = predictions_of([row_of(range(2, 7), 10)], SpanBoundary(max_pair_targets=3))
    assert found == [(2, 1, 7, 0), (3, 1, 7, 1), (4, 1, 7, 2)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("positions", [2, 15])
def test_loss_gradients_and_count_equal_those_of_the_reference(seed: int, positions: int) -> None:
    rows, model = random_rows([5, 30, 1, 13, 21], VOCAB, seed=seed, rate=0.5), net(seed, max_pair_targets=positions)
    loss = SpanBoundary(max_pair_targets=positions)
    wanted, number = reference(model, rows, positions)
    parameters = [weight for name, weight in model.named_parameters() if "masked_tokens" not in name]
    gradients = torch.autograd.grad(wanted, parameters)
    for batch in (collate_unpadded(rows), collate_padded(rows, 32)):
        score = model(batch)["span_boundary"]
        arrays = {name: tensor.numpy() for name, tensor in batch.items()}
        assert score.count == number == loss.count(batch) == loss.count(arrays)
        torch.testing.assert_close(score.loss, wanted, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(torch.autograd.grad(score.loss, parameters), gradients, rtol=1e-4, atol=1e-4)


def test_a_batch_without_predicted_tokens_has_zero_loss() -> None:
    batch, model = collate_unpadded([row_of([], 6), row_of([1], 6)]), net()
    score = model(batch)["span_boundary"]
    score.loss.backward()
    assert (float(score.loss.detach()), score.count, LOSS.count(batch)) == (0.0, 0, 0)
    assert not model.heads["span_boundary"].first.weight.grad.any()


def test_the_head_does_not_depend_on_the_tokens_of_the_span() -> None:
    """The head reads only the states around the span. If tokens are not mixed, another token in the span changes
    nothing."""
    batch, model = collate_unpadded([row_of([4, 5], 10)]), net()
    hidden_TD = model.trunk.embed(batch)
    changed = model.trunk.embed(batch | {"input_ids": torch.where(torch.arange(10) == 4, 9, batch["input_ids"])})
    head, table = model.heads["span_boundary"], model.trunk.table
    assert torch.equal(head(hidden_TD, batch, table).loss, head(changed, batch, table).loss)


def test_each_position_of_a_span_has_its_own_vector() -> None:
    batch, model = collate_unpadded([row_of([4, 5, 6], 10)]), net()
    features = model.heads["span_boundary"].features(model.trunk(batch), boundary_targets(batch, LOSS.max_pair_targets))
    assert (features[0] - features[1]).abs().max() > 1e-3
