"""The initial weights of a run: those of another model, adapted to a trunk with a longer context."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from preprocessing.errors import BadInput
from tests.training.batches import collate_unpadded, random_rows
from tests.training.parity import ONE_PAD, ZERO_PAD, built, vocabulary, weights
from training.formats import save_weights, to_transformers
from training.formats.start import load_init_checkpoint, require_fitting_weights
from training.losses import MaskedTokens, NextToken, SentencePair
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Decoder, Encoder, LearnedPositions, SinusoidalPositions, SlidingWindow

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


def write(spec: ModelSpec, folder: Path, in_their_format: bool) -> None:
    if in_their_format:
        padding = ZERO_PAD if spec.model.position_embedding.offset == 0 else ONE_PAD
        to_transformers(weights(built(spec)), spec, vocabulary(padding, folder / "vocab"), folder)
    else:
        save_weights(weights(built(spec)), spec, folder)


def started(spec: ModelSpec, folder: Path) -> Model:
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=1).eval()
    load_init_checkpoint(model, folder)
    return model


@pytest.mark.parametrize("in_their_format", [False, True])
def test_longformer_starts_from_roberta_and_repeats_its_positions(in_their_format: bool, tmp_path: Path) -> None:
    roberta = built(ROBERTA)
    write(ROBERTA, tmp_path, in_their_format)
    longformer = started(LONGFORMER, tmp_path)
    table_PD = longformer.trunk.positions.weight[2:]
    for start in (0, 8, 16):
        assert torch.equal(table_PD[start : start + 8], roberta.trunk.positions.weight[2:])
    batch = collate_unpadded(
        random_rows([8, 5], 320)
    )  # with a window wider than the sequence, all tokens attend to all
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
    batch = collate_unpadded(random_rows([10, 5], 320))
    assert torch.equal(moved.trunk(batch), bert.trunk(batch))


def test_shared_layers_are_initialized_from_another_model(tmp_path: Path) -> None:
    spec = replace(BERT, model=replace(BERT.model, num_hidden_layers=4, parameter_sharing="all", num_hidden_groups=2))
    model = built(spec)
    save_weights(weights(model), spec, tmp_path)
    batch = collate_unpadded(random_rows([10, 5], 320))
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
        (
            {"num_hidden_layers": 3},
            "model.num_hidden_layers: got 3, expected 2 as in DIR; set model.num_hidden_layers=2",
        ),
        (
            {"num_hidden_layers": 1},
            "model.num_hidden_layers: got 1, expected 2 as in DIR; set model.num_hidden_layers=2",
        ),
        (
            {"position_embedding": LearnedPositions(max_position_embeddings=9, offset=1)},
            "model.position_embedding.max_position_embeddings: got 9, expected 11 as in DIR; "
            "set model.position_embedding.max_position_embeddings=11",
        ),
        (
            {"position_embedding": SinusoidalPositions()},
            "model.position_embedding.kind: got sinusoidal, expected learned as in DIR; "
            "set model.position_embedding.kind=learned",
        ),
        (
            {"intermediate_size": 64},
            "model.intermediate_size: got 64, expected 128 as in DIR; set model.intermediate_size=128",
        ),
        (
            {"num_attention_heads": 2},
            "model.num_attention_heads: got 2, expected 4 as in DIR; set model.num_attention_heads=4",
        ),
        ({"head_dim": 16}, "model.head_dim: got 16, expected 8 as in DIR; set model.head_dim=8"),
        ({"activation": "relu"}, "model.activation: got relu, expected gelu as in DIR; set model.activation=gelu"),
        (
            {"norm_position": "pre"},
            "model.norm_position: got pre, expected post as in DIR; set model.norm_position=post",
        ),
        (
            {"parameter_sharing": "all"},
            "model.parameter_sharing: got all, expected none as in DIR; set model.parameter_sharing=none",
        ),
        ({"embedding_size": 16}, "model.embedding_size: got 16, expected 32 as in DIR; set model.embedding_size=32"),
        ({"type_vocab_size": 1}, "model.type_vocab_size: got 1, expected 2 as in DIR; set model.type_vocab_size=2"),
        ({"type_vocab_size": 7}, "model.type_vocab_size: got 7, expected 2 as in DIR; set model.type_vocab_size=2"),
        ({"num_languages": 3}, "model.num_languages: got 3, expected 0 as in DIR; set model.num_languages=0"),
    ],
)
@pytest.mark.parametrize("in_their_format", [False, True])
def test_another_architecture_is_refused_with_the_value_to_set(
    in_their_format: bool, keys: dict[str, object], message: str, tmp_path: Path
) -> None:
    """Heads and activations change no shape."""
    write(BERT, tmp_path, in_their_format)
    with pytest.raises(BadInput) as refusal:
        started(replace(BERT, model=replace(BERT.model, **keys)), tmp_path)
    file = tmp_path / ("config.json" if in_their_format else "spec.json")
    assert str(refusal.value) == "invalid " + message.replace("DIR", str(file))


def test_each_different_key_has_a_line(tmp_path: Path) -> None:
    write(BERT, tmp_path, in_their_format=False)
    with pytest.raises(BadInput) as refusal:
        require_fitting_weights(
            tmp_path, replace(BERT.model, hidden_size=64, num_attention_heads=2, num_hidden_layers=1), BERT.losses
        )
    assert [line.split("; ")[1] for line in str(refusal.value).splitlines()] == [
        "set model.num_hidden_layers=2",
        "set model.hidden_size=32",
        "set model.num_attention_heads=4",
    ]


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    write(BERT, tmp_path, in_their_format=False)
    decoder = Decoder(num_hidden_layers=2, hidden_size=32, num_attention_heads=4)
    with pytest.raises(
        BadInput,
        match=r"invalid model.kind: got decoder, expected encoder as in .*spec.json; use a recipe with model kind "
        r"encoder, or set init_checkpoint to a model of kind decoder$",
    ):
        require_fitting_weights(tmp_path, decoder, (NextToken(),))


def test_what_concerns_only_the_training_may_differ(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(BERT, tmp_path, in_their_format=True)
    keys = {"hidden_dropout": 0.2, "attention_dropout": 0.3, "init_std": 0.5, "init_method": "truncated_normal"}
    require_fitting_weights(tmp_path, replace(BERT.model, **keys, attention_mask="causal"), BERT.losses)
    assert not caplog.records
    require_fitting_weights(tmp_path, replace(BERT.model, norm_eps=1e-5), BERT.losses)
    assert caplog.messages == [
        f"model.norm_eps is 1e-05, but 1e-12 in {tmp_path}/config.json; to keep that value, set model.norm_eps=1e-12"
    ]


def test_a_longer_model_passes_the_check(tmp_path: Path) -> None:
    write(ROBERTA, tmp_path, in_their_format=False)
    require_fitting_weights(tmp_path, LONGFORMER.model, LONGFORMER.losses)


def test_a_vocabulary_of_another_size_is_refused(tmp_path: Path) -> None:
    write(BERT, tmp_path, in_their_format=False)
    with pytest.raises(
        BadInput,
        match=r"trunk.tokens.weight: got \[320, 32\], expected \[300, 32\], because the vocabulary has 320 tokens in "
        r"this directory, and 300 in the recipe; set data.tokenizer.path to the vocabulary of these weights$",
    ):
        started(replace(BERT, vocab_size=300), tmp_path)
