"""What a run begins with: another net's weights, fitted to a trunk that sees further."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from preprocessing.errors import BadInput
from tests.training.batches import random_rows, unpadded
from tests.training.parity import ONE_PAD, ZERO_PAD, built, vocabulary, weights
from training.formats import save_weights, to_transformers
from training.formats.start import take_over
from training.losses import MaskedTokens, PairLabel
from training.model import Model, ModelSpec
from training.specs import Around, Encoder, Learned

ROBERTA = ModelSpec(
    trunk=Encoder(
        layers=2,
        width=32,
        heads=4,
        positions=Learned(max=10, offset=2),
        segments=1,
        dropout=0.0,
        attention_dropout=0.0,
    ),
    losses=(MaskedTokens(),),
    vocab_size=320,
)
WINDOW = Around(tokens=50, global_tokens="first")
LONGFORMER = replace(
    ROBERTA, trunk=replace(ROBERTA.trunk, positions=Learned(max=27, offset=2), window=WINDOW, init_std=0.1)
)
BERT = replace(ROBERTA, trunk=replace(ROBERTA.trunk, positions=Learned(max=10), segments=2))


def started(spec: ModelSpec, folder: Path) -> Model:
    model = Model(spec.trunk, spec.losses, spec.vocab_size, seed=1).eval()
    take_over(model, folder)
    return model


@pytest.mark.parametrize("in_their_format", [False, True])
def test_longformer_begins_as_roberta_and_its_positions_repeat(in_their_format: bool, tmp_path: Path) -> None:
    roberta = built(ROBERTA)
    if in_their_format:
        to_transformers(weights(roberta), ROBERTA, vocabulary(ONE_PAD, tmp_path / "vocab"), tmp_path)
    else:
        save_weights(weights(roberta), ROBERTA, tmp_path)
    longformer = started(LONGFORMER, tmp_path)
    table_PD = longformer.trunk.positions.weight[2:]
    for start in (0, 8, 16):
        assert torch.equal(table_PD[start : start + 8], roberta.trunk.positions.weight[2:])
    batch = unpadded(random_rows([8, 5], 320))  # in a window wider than the row, all see all
    batch["segments"] *= 0
    torch.testing.assert_close(longformer.trunk(batch), roberta.trunk(batch), rtol=0, atol=1e-5)


def test_longformer_begins_with_its_own_global_linears_where_there_are_some(tmp_path: Path) -> None:
    trained = built(LONGFORMER)
    save_weights(weights(trained), LONGFORMER, tmp_path)
    state = weights(started(LONGFORMER, tmp_path))
    assert all(torch.equal(tensor, state[name]) for name, tensor in weights(trained).items())


def test_six_segments_begin_as_the_first_or_the_second(tmp_path: Path) -> None:
    bert = built(BERT)
    save_weights(weights(bert), BERT, tmp_path)
    unilm = started(replace(BERT, trunk=replace(BERT.trunk, segments=6, visibility="rows")), tmp_path)
    assert torch.equal(unilm.trunk.segments.weight, bert.trunk.segments.weight[[0, 1, 0, 0, 0, 1]])


def test_positions_that_count_from_elsewhere_are_moved(tmp_path: Path) -> None:
    bert = built(BERT)
    to_transformers(weights(bert), BERT, vocabulary(ZERO_PAD, tmp_path / "vocab"), tmp_path)
    moved = started(replace(BERT, trunk=replace(BERT.trunk, positions=Learned(max=12, offset=2))), tmp_path)
    batch = unpadded(random_rows([10, 5], 320))
    assert torch.equal(moved.trunk(batch), bert.trunk(batch))


def test_shared_layers_are_taken_over(tmp_path: Path) -> None:
    spec = replace(BERT, trunk=replace(BERT.trunk, layers=4, sharing="all", groups=2))
    model = built(spec)
    save_weights(weights(model), spec, tmp_path)
    batch = unpadded(random_rows([10, 5], 320))
    assert torch.equal(started(spec, tmp_path).trunk(batch), model.trunk(batch))


def test_head_that_is_not_there_stays_random(tmp_path: Path) -> None:
    save_weights(weights(built(BERT)), BERT, tmp_path)
    spec = replace(BERT, losses=(MaskedTokens(), PairLabel()))
    fresh = Model(spec.trunk, spec.losses, spec.vocab_size, seed=1)
    found = started(spec, tmp_path).heads["pair_label"].pooler.weight
    assert torch.equal(found, fresh.heads["pair_label"].pooler.weight)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"layers": 3}, "has no trunk.blocks.2"),
        ({"layers": 1}, "has trunk.blocks.1.*, which this recipe has not"),
        ({"positions": Learned(max=9)}, r"trunk.positions.weight is \[10, 32\], this recipe wants \[9, 32\]"),
        ({"inner": 64}, "start from weights of the same trunk"),
    ],
)
def test_another_trunk_is_refused(keys: dict[str, int], message: str, tmp_path: Path) -> None:
    save_weights(weights(built(BERT)), BERT, tmp_path)
    with pytest.raises(BadInput, match=message):
        started(replace(BERT, trunk=replace(BERT.trunk, **keys)), tmp_path)
