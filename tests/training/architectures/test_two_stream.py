"""XLNet compared with an oracle, with and without a memory: logits, losses, gradients and attention masks."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from preprocessing import collate
from preprocessing.schema import IGNORE, Row
from tests.training import parity
from tests.training.batches import random_rows, tensors
from training.formats import to_transformers
from training.formats.load import from_transformers
from training.formats.xlnet import XLNET
from training.losses import MaskedTokens
from training.model import Model, parameter_groups
from training.model_spec import ModelSpec
from training.specs import TwoStream, TwoStreamRelativePositions

SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "init_std": 0.2,
    "type_vocab_size": 3,
}
KEEPING_FIVE = TwoStreamRelativePositions(mem_len=8, reuse_len=5)
TRUNK = TwoStream(
    **SIZES, position_embedding=TwoStreamRelativePositions(mem_len=8), hidden_dropout=0.0, attention_dropout=0.0
)
LOSSES = (MaskedTokens(transform=False),)
VOCAB = 50
BOTH = pytest.mark.parametrize("unpadded", [True, False], ids=["unpadded", "padded"])


def built(trunk: TwoStream = TRUNK) -> Model:
    return parity.built(ModelSpec(model=trunk, losses=LOSSES, vocab_size=VOCAB))


def with_random_order(row: Row, seed: int = 0) -> Row:
    """The sequence with a random prediction order. A target attends to all non-targets, and to the targets before
    it."""
    rng, is_target_S = np.random.default_rng(seed), row["labels"] != IGNORE
    place_S = rng.permutation(len(is_target_S))
    rank_S = np.where(is_target_S, place_S, -1)
    return row | {"rank": rank_S, "reach": np.where(is_target_S, place_S - 1, -1)}


def rows_of(lengths: list[int], seed: int = 0, rate: float = 0.4) -> list[Row]:
    """Random sequences in random orders, with three segments. First tokens are no targets, so that each token can
    attend to something."""
    rows = random_rows(lengths, VOCAB, seed, rate)
    for row in rows:
        row["labels"][0] = IGNORE
        row["token_type_ids"] = np.arange(len(row["input_ids"])) * 3 // len(row["input_ids"])
        del row["next_sentence_label"]
    return [with_random_order(row, number) for number, row in enumerate(rows)]


def batch_of(rows: list[Row], unpadded: bool = True, **columns: Tensor) -> dict[str, Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    batch = collate.collate_unpadded(rows) if unpadded else collate.collate_padded(rows, longest + 2, 0)
    return tensors(batch) | columns


def with_memory(rows: list[Row], fresh: bool) -> dict[str, Tensor]:
    return batch_of(rows, slot=torch.tensor(0), fresh=torch.full((len(rows),), fresh))


def oracle(model: Model) -> Any:
    """XLNet of transformers with our weights."""
    spec = model.spec
    config = parity.hf().XLNetConfig(vocab_size=VOCAB, **XLNET.config(spec, None))  # type: ignore[arg-type]
    config._attn_implementation = "eager"
    theirs = parity.hf().XLNetLMHeadModel(config).eval()
    state = XLNET.theirs(dict(model.named_parameters()), spec)
    missing, left_over = theirs.load_state_dict({name: tensor.detach() for name, tensor in state.items()}, strict=False)
    assert (missing, left_over) == (["lm_loss.weight"], [])
    theirs.tie_weights()
    return theirs


def oracle_inputs(rows: list[Row]) -> tuple[dict[str, Tensor], Tensor]:
    """The same sequences as transformers takes them, and the labels [B, Q]. All have the same length and number of
    targets."""
    ids_BS, segments_BS = (
        torch.tensor(np.stack([row[name] for row in rows])) for name in ("input_ids", "token_type_ids")
    )
    hidden_BSS = torch.tensor(np.stack([row["rank"][None, :] > row["reach"][:, None] for row in rows])).float()
    at_BQ = torch.tensor(np.stack([np.flatnonzero(row["labels"] != IGNORE) for row in rows]))
    labels_BQ = torch.tensor(np.stack([row["labels"] for row in rows])).gather(1, at_BQ)
    inputs = {"input_ids": ids_BS, "token_type_ids": segments_BS, "perm_mask": hidden_BSS}
    return inputs | {"target_mapping": F.one_hot(at_BQ, ids_BS.shape[1]).float()}, labels_BQ


def sequences_of_equal_targets(count: int, length: int, targets: int, seed: int = 0) -> list[Row]:
    """Sequences with the same number of targets each, as the oracle requires."""
    rng, rows = np.random.default_rng(seed), rows_of([length] * count, seed, rate=1.0)
    for number, row in enumerate(rows):
        row["labels"][rng.permutation(np.arange(1, length))[targets:]] = IGNORE
        rows[number] = with_random_order(row, seed + number)
    return rows


def logits_of(model: Model, batch: Mapping[str, Tensor]) -> Tensor:
    """Logits [M, V] at the targets."""
    states_MD = model.trunk(batch).flatten(0, -2)[batch["targets_at"]]
    return F.linear(states_MD, model.trunk.table, model.heads["masked_tokens"].bias)


# The oracle.


def test_logits_and_losses_equal_those_of_the_oracle_with_and_without_a_memory() -> None:
    model = built()
    theirs, memory = oracle(model), None
    for number in range(3):
        rows = sequences_of_equal_targets(3, 9, 4, seed=number)
        batch, (inputs, labels_BQ) = with_memory(rows, fresh=number == 0), oracle_inputs(rows)
        with torch.no_grad():
            wanted = theirs(**inputs, labels=labels_BQ, mems=memory, use_mems=True)
            seen = model.trunk.memory.states.copy(), model.trunk.memory.counts.copy()
            torch.testing.assert_close(logits_of(model, batch), wanted.logits.flatten(0, 1), rtol=0, atol=1e-5)
            model.trunk.memory.states, model.trunk.memory.counts = seen
            score = model(batch)["masked_tokens"]
        torch.testing.assert_close(score.loss / score.count, wanted.loss, rtol=1e-6, atol=0)
        memory = list(wanted.mems)
        remembered = torch.stack(memory).transpose(1, 2)
        torch.testing.assert_close(model.trunk.memory.states[0], remembered, rtol=0, atol=1e-5)


def test_gradients_equal_those_of_the_oracle() -> None:
    model = built()
    theirs, first, rows = (
        oracle(model),
        sequences_of_equal_targets(3, 9, 4),
        sequences_of_equal_targets(3, 9, 4, seed=1),
    )
    with torch.no_grad():
        memory = theirs(**oracle_inputs(first)[0], use_mems=True).mems
        model(with_memory(first, fresh=True))
    inputs, labels_BQ = oracle_inputs(rows)
    theirs(**inputs, labels=labels_BQ, mems=list(memory)).loss.backward()
    score = model(with_memory(rows, fresh=False))["masked_tokens"]
    (score.loss / score.count).backward()
    found = XLNET.theirs({name: tensor.grad for name, tensor in model.named_parameters()}, model.spec)
    wanted = {name: tensor.grad for name, tensor in theirs.named_parameters()}
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def test_states_without_an_order_equal_those_of_the_oracle() -> None:
    model, rows = built(), sequences_of_equal_targets(3, 9, 4)
    theirs = oracle(model).transformer
    inputs, _ = oracle_inputs(rows)
    batch = {name: column for name, column in batch_of(rows).items() if name not in ("rank", "reach")}
    with torch.no_grad():
        wanted = theirs(inputs["input_ids"], token_type_ids=inputs["token_type_ids"]).last_hidden_state
        torch.testing.assert_close(model.trunk(batch), wanted.flatten(0, 1), rtol=0, atol=1e-5)
        torch.testing.assert_close(model.trunk.summary(batch), wanted[:, -1], rtol=0, atol=1e-5)


def test_the_memory_keeps_the_reused_part_of_a_sequence_like_the_oracle() -> None:
    model = built(replace(TRUNK, position_embedding=KEEPING_FIVE))
    theirs, memory = oracle(model), None
    for number in range(3):
        rows = sequences_of_equal_targets(2, 9, 4, seed=number)
        with torch.no_grad():
            memory = list(theirs(**oracle_inputs(rows)[0], mems=memory, use_mems=True).mems)
            model(with_memory(rows, fresh=number == 0))
        torch.testing.assert_close(model.trunk.memory.states[0], torch.stack(memory).transpose(1, 2), rtol=0, atol=1e-5)
    assert model.trunk.memory.states[0].shape[2] == 8


def test_exported_weights_have_our_logits_and_are_imported_bit_for_bit(tmp_path: Path) -> None:
    spec = ModelSpec(
        model=replace(TRUNK, position_embedding=KEEPING_FIVE, intermediate_size=128, type_vocab_size=2),
        losses=LOSSES,
        vocab_size=320,
    )
    model = parity.built(spec)
    to_transformers(
        parity.weights(model), spec, parity.vocabulary(parity.ONE_PAD, tmp_path / "vocab"), tmp_path / "out"
    )
    theirs, rows = parity.loaded(tmp_path / "out"), sequences_of_equal_targets(3, 9, 4)
    with torch.no_grad():
        wanted = theirs(**oracle_inputs(rows)[0]).logits.flatten(0, 1)
        torch.testing.assert_close(logits_of(model, batch_of(rows)), wanted, rtol=0, atol=1e-5)
    found, back = from_transformers(tmp_path / "out")
    assert found == spec
    assert back.keys() == parity.weights(model).keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in parity.weights(model).items())


# Text that is read backward: the second half of a batch, as with `bi_data` of the oracle.


def half_backward(rows: list[Row]) -> list[Row]:
    down_S = np.arange(len(rows[0]["input_ids"]))[::-1]
    return [row | {"positions": down_S} if 2 * number >= len(rows) else row for number, row in enumerate(rows)]


@pytest.mark.parametrize("unpadded", [True, False], ids=["unpadded", "padded"])
def test_backward_sequences_have_the_logits_and_gradients_of_the_oracle(unpadded: bool) -> None:
    model = built()
    theirs, memory = oracle(model), None
    theirs.config.bi_data = theirs.transformer.bi_data = True
    for number in range(2):
        rows = sequences_of_equal_targets(4, 9, 4, seed=number)
        columns = {"slot": torch.tensor(0), "fresh": torch.full((4,), number == 0)}
        batch, (inputs, labels_BQ) = batch_of(half_backward(rows), unpadded, **columns), oracle_inputs(rows)
        model.zero_grad()
        theirs.zero_grad()
        kept = model.trunk.memory.states.copy(), model.trunk.memory.counts.copy()
        wanted = theirs(**inputs, labels=labels_BQ, mems=memory, use_mems=True)
        torch.testing.assert_close(logits_of(model, batch), wanted.logits.flatten(0, 1), rtol=0, atol=1e-5)
        model.trunk.memory.states, model.trunk.memory.counts = kept
        score = model(batch)["masked_tokens"]
        (score.loss / score.count).backward()
        wanted.loss.backward()
        memory = [layer.detach() for layer in wanted.mems]
        found = XLNET.theirs({name: tensor.grad for name, tensor in model.named_parameters()}, model.spec)
        gradients = {name: tensor.grad for name, tensor in theirs.named_parameters()}
        torch.testing.assert_close(found, gradients, rtol=0, atol=1e-5)


def test_a_reversed_sequence_has_the_states_of_the_original() -> None:
    model, (row,) = built(), rows_of([9])
    turned = {name: np.flip(column).copy() for name, column in row.items()} | {"positions": np.arange(9)[::-1]}
    forward, backward = (logits_of(model, batch_of([one])) for one in (row, turned))
    torch.testing.assert_close(backward.flip(0), forward, rtol=0, atol=1e-5)


# Attention masks: reference/family.md D2.1.


def in_order(*places: int) -> list[Row]:
    """A sequence of 8 tokens with targets 1, 4 and 6; `places` are their ranks in the prediction order."""
    rank_S = np.full(8, -1)
    rank_S[[1, 4, 6]] = places
    row = {"input_ids": np.arange(10, 18), "token_type_ids": np.zeros(8), "labels": np.where(rank_S >= 0, 7, IGNORE)}
    return [row | {"rank": rank_S, "reach": np.where(rank_S < 0, -1, rank_S - 1)}]


def changed(rows: list[Row], at: int) -> list[Row]:
    return [row | {"input_ids": np.where(np.arange(8) == at, 42, row["input_ids"])} for row in rows]


@pytest.mark.parametrize(("token", "moved"), [(1, [False] * 3), (4, [True, False, False]), (6, [True, True, False])])
def test_only_later_targets_attend_to_a_target(token: int, moved: list[bool]) -> None:
    model, rows = built(), in_order(8, 1, 0)
    before, after = (logits_of(model, batch_of(given)) for given in (rows, changed(rows, token)))
    assert [not torch.equal(a, b) for a, b in zip(before, after, strict=True)] == moved


@pytest.mark.parametrize("token", [0, 2, 3, 5, 7])
def test_every_target_attends_to_a_token_that_is_no_target(token: int) -> None:
    model, rows = built(), in_order(8, 1, 0)
    before, after = (logits_of(model, batch_of(given)) for given in (rows, changed(rows, token)))
    assert (before - after).abs().amin(dim=0).max() > 1e-3


def test_a_target_without_context_has_finite_states_and_gradients() -> None:
    model, rows = built(), rows_of([6], rate=1.0)
    rows[0]["labels"][0] = 3
    row = with_random_order(rows[0])
    batch = batch_of([row])
    model(batch)["masked_tokens"].loss.backward()
    assert all(tensor.grad.isfinite().all() for tensor in model.parameters())
    first = int(row["rank"].argmin())
    blind = logits_of(model, batch)[first]
    other = logits_of(model, batch | {"input_ids": (batch["input_ids"] + 1) % VOCAB})[first]
    assert torch.equal(blind, other)


# Weight decay.


def test_only_attention_biases_decay_as_in_the_authors_code() -> None:
    """model_utils.py excludes LayerNorm, layer_norm and bias by name, and includes r_w_bias, r_r_bias and r_s_bias."""
    model = built()
    names = {id(tensor): name for name, tensor in model.named_parameters()}
    decaying, constant = ({names[id(one)] for one in group["params"]} for group in parameter_groups(model, 0.01))
    theirs = {name: XLNET.theirs({name: tensor.detach()}, model.spec) for name, tensor in model.named_parameters()}
    for name, tensors_of in theirs.items():
        included = any(re.search("r_[swr]_bias", their) for their in tensors_of)
        excluded = any(re.search("LayerNorm|layer_norm|bias", their) for their in tensors_of)
        assert (name in decaying) == (included or not excluded), name
        assert (name in constant) == (name not in decaying)


# Layouts.


@BOTH
def test_each_sequence_has_the_same_states_as_alone(unpadded: bool) -> None:
    model, rows = built(), rows_of([5, 9, 3, 8])
    found_MV = logits_of(model, batch_of(rows, unpadded))
    wanted_MV = torch.cat([logits_of(model, batch_of([row])) for row in rows])
    torch.testing.assert_close(found_MV, wanted_MV, rtol=0, atol=1e-5)


@BOTH
def test_states_are_zero_at_tokens_that_are_not_predicted(unpadded: bool) -> None:
    batch = batch_of(rows_of([5, 9, 3, 8]), unpadded)
    hidden = built().trunk(batch)
    assert hidden.shape == (*batch["input_ids"].shape, 32)
    asked_at = hidden.flatten(0, -2).abs().sum(-1).nonzero().squeeze(1)
    assert torch.equal(asked_at, batch["targets_at"])


@pytest.mark.parametrize(
    ("layers", "width", "heads", "count"),
    [pytest.param(12, 768, 12, 116_750_336, id="base"), pytest.param(24, 1024, 16, 360_300_800, id="large")],
)
def test_model_has_the_published_number_of_weights(layers: int, width: int, heads: int, count: int) -> None:
    with torch.device("meta"):
        model = Model(
            TwoStream(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads), LOSSES, 32_000, seed=0
        )
    assert model.num_parameters == count
    assert model.num_parameters - 32_000 == sum(tensor.numel() for tensor in model.trunk.parameters())
