"""The initial weights of a run: those of another model, adapted to a trunk with a longer context."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from preprocessing.errors import BadInput
from tests.training.batches import random_rows, unpadded
from tests.training.parity import ONE_PAD, ZERO_PAD, built, vocabulary, weights
from training.formats import save_weights, to_transformers
from training.formats.start import load_init_checkpoint, require_fitting_weights
from training.losses import MaskedTokens, SentencePair
from training.model import Model, ModelSpec
from training.specs import Encoder, LearnedPositions, SlidingWindow

ROBERTA = ModelSpec(
    model=Encoder(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        position_embedding=LearnedPositions(max_position_embeddings=10, offset=2),
        type_vocab_size=1,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    ),
    losses=(MaskedTokens(),),
    vocab_size=320,
)
WINDOW = SlidingWindow(size=50, global_tokens="first")
LONGFORMER = replace(
    ROBERTA,
    model=replace(
        ROBERTA.model,
        position_embedding=LearnedPositions(max_position_embeddings=27, offset=2),
        attention_window=WINDOW,
        init_std=0.1,
    ),
)
BERT = replace(
    ROBERTA,
    model=replace(ROBERTA.model, position_embedding=LearnedPositions(max_position_embeddings=10), type_vocab_size=2),
)


def started(spec: ModelSpec, folder: Path) -> Model:
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=1).eval()
    load_init_checkpoint(model, folder)
    return model


@pytest.mark.parametrize("in_their_format", [False, True])
def test_longformer_starts_from_roberta_and_repeats_its_positions(in_their_format: bool, tmp_path: Path) -> None:
    roberta = built(ROBERTA)
    if in_their_format:
        to_transformers(weights(roberta), ROBERTA, vocabulary(ONE_PAD, tmp_path / "vocab"), tmp_path)
    else:
        save_weights(weights(roberta), ROBERTA, tmp_path)
    longformer = started(LONGFORMER, tmp_path)
    table_PD = longformer.trunk.positions.weight[2:]
    for start in (0, 8, 16):
        assert torch.equal(table_PD[start : start + 8], roberta.trunk.positions.weight[2:])
    batch = unpadded(random_rows([8, 5], 320))  # with a window wider than the sequence, all tokens attend to all
    batch["token_type_ids"] *= 0
    torch.testing.assert_close(longformer.trunk(batch), roberta.trunk(batch), rtol=0, atol=1e-5)


def test_longformer_starts_with_its_own_global_linears_if_available(tmp_path: Path) -> None:
    trained = built(LONGFORMER)
    save_weights(weights(trained), LONGFORMER, tmp_path)
    state = weights(started(LONGFORMER, tmp_path))
    assert all(torch.equal(tensor, state[name]) for name, tensor in weights(trained).items())


def test_six_segments_start_as_copies_of_the_first_two(tmp_path: Path) -> None:
    bert = built(BERT)
    save_weights(weights(bert), BERT, tmp_path)
    unilm = started(
        replace(BERT, model=replace(BERT.model, type_vocab_size=6, attention_mask="per_sequence")), tmp_path
    )
    assert torch.equal(unilm.trunk.segments.weight, bert.trunk.segments.weight[[0, 1, 0, 0, 0, 1]])


def test_positions_with_another_offset_are_shifted(tmp_path: Path) -> None:
    bert = built(BERT)
    to_transformers(weights(bert), BERT, vocabulary(ZERO_PAD, tmp_path / "vocab"), tmp_path)
    moved = started(
        replace(
            BERT, model=replace(BERT.model, position_embedding=LearnedPositions(max_position_embeddings=12, offset=2))
        ),
        tmp_path,
    )
    batch = unpadded(random_rows([10, 5], 320))
    assert torch.equal(moved.trunk(batch), bert.trunk(batch))


def test_shared_layers_are_initialized_from_another_model(tmp_path: Path) -> None:
    spec = replace(BERT, model=replace(BERT.model, num_hidden_layers=4, parameter_sharing="all", num_hidden_groups=2))
    model = built(spec)
    save_weights(weights(model), spec, tmp_path)
    batch = unpadded(random_rows([10, 5], 320))
    assert torch.equal(started(spec, tmp_path).trunk(batch), model.trunk(batch))


def test_a_missing_head_stays_random(tmp_path: Path) -> None:
    save_weights(weights(built(BERT)), BERT, tmp_path)
    spec = replace(BERT, losses=(MaskedTokens(), SentencePair()))
    fresh = Model(spec.model, spec.losses, spec.vocab_size, seed=1)
    found = started(spec, tmp_path).heads["pair_label"].pooler.weight
    assert torch.equal(found, fresh.heads["pair_label"].pooler.weight)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_hidden_layers": 3}, "missing weight trunk.blocks.2"),
        ({"num_hidden_layers": 1}, "unexpected weight trunk.blocks.1.*, which the recipe's model lacks"),
        (
            {"position_embedding": LearnedPositions(max_position_embeddings=9)},
            r"invalid shape of trunk.positions.weight: got \[10, 32\], expected \[9, 32\]",
        ),
        ({"intermediate_size": 64}, "set init_checkpoint to a model of the same architecture"),
    ],
)
def test_another_trunk_is_refused(keys: dict[str, int], message: str, tmp_path: Path) -> None:
    save_weights(weights(built(BERT)), BERT, tmp_path)
    with pytest.raises(BadInput, match=message):
        started(replace(BERT, model=replace(BERT.model, **keys)), tmp_path)


def test_shapes_are_compared_without_building_the_model(tmp_path: Path) -> None:
    save_weights(weights(built(ROBERTA)), ROBERTA, tmp_path)
    require_fitting_weights(tmp_path, LONGFORMER.model, LONGFORMER.losses)
    wider = replace(ROBERTA.model, hidden_size=64)
    with pytest.raises(
        BadInput, match=r"invalid shape of trunk\.tokens\.weight: got \[320, 32\], expected \[320, 64\]"
    ):
        require_fitting_weights(tmp_path, wider, ROBERTA.losses)
    deeper = replace(ROBERTA.model, num_hidden_layers=3)
    with pytest.raises(BadInput, match=r"missing weight trunk\.blocks\.2\."):
        require_fitting_weights(tmp_path, deeper, ROBERTA.losses)
