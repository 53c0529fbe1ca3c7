"""The tensors of transformers equal the separate tensors that the optimizers see in our fused parameters."""

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.training import encoder_decoders
from tests.training.architectures import test_disentangled, test_encoders, test_generator_discriminator, test_two_stream
from tests.training.formats import newer
from tests.training.parity import ONE_PAD, ZERO_PAD, loaded, vocabulary, weights
from training.formats import FORMATS, to_transformers
from training.losses import MaskedTokens, NextToken
from training.model import Model, shapes_of
from training.model_spec import ModelSpec
from training.specs import Architecture, Decoder, LearnedPositions

VOCAB = 320
COPIED = "albert with wide tables"  # transformers has an identity matrix that is not one of our tensors
NETS: Mapping[str, ModelSpec] = {
    **{name: spec for name, spec in test_encoders.SPECS.items() if name != COPIED},
    "deberta-v2": ModelSpec(model=test_disentangled.ENCODER, losses=(MaskedTokens(),), vocab_size=VOCAB),
    "xlnet": ModelSpec(model=test_two_stream.TRUNK, losses=test_two_stream.LOSSES, vocab_size=VOCAB),
    "electra": ModelSpec(
        model=test_generator_discriminator.SMALL, losses=test_generator_discriminator.LOSSES, vocab_size=VOCAB
    ),
    "bart": encoder_decoders.spec_of(encoder_decoders.BART),
    "mbart": encoder_decoders.spec_of(encoder_decoders.MBART),
    "pegasus": encoder_decoders.spec_of(encoder_decoders.PEGASUS),
    "t5": encoder_decoders.spec_of(encoder_decoders.T5),
    **{name: newer.make_spec(trunk, VOCAB) for name, trunk in newer.TRUNKS.items()},
    **{
        name: ModelSpec(
            model=Decoder(
                num_hidden_layers=2,
                hidden_size=32,
                num_attention_heads=4,
                norm_position=norm,
                position_embedding=LearnedPositions(max_position_embeddings=16, offset=offset),
                activation="gelu_tanh",
            ),
            losses=(NextToken(),),
            vocab_size=VOCAB,
        )
        for name, norm, offset in (("gpt1", "post", 0), ("gpt2", "pre", 0), ("opt", "pre", 2))
    },
}
# Numbers of our tensors in tensors of transformers, by a part of their names: queries, keys and values of GPT-1, GPT-2
# (Grover has separate ones), GPT-NeoX, MPT and ModernBERT, and the first layer of ModernBERT with its gate.
ONE_THERE = {"c_attn.": 3, "query_key_value.": 3, "Wqkv.": 3, "Wi.": 2}
# sinusoids, which are not weights in our models
FIXED = ("embed_positions.weight", "transformer.position_embeddings.weight")
NOT_EXPORTED = ("trunk.generator.", "heads.masked_tokens.")  # parts of ELECTRA that are not exported


@pytest.fixture(scope="module")
def vocabs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Directories with vocabularies whose padding is token 0 and token 1."""
    return [vocabulary(spec, tmp_path_factory.mktemp("vocab")) for spec in (ZERO_PAD, ONE_PAD)]


def pad_of(trunk: Architecture) -> int:
    return int(trunk.kind == "encoder_decoder" or trunk.position_embedding.offset == 2)


def numbered(spec: ModelSpec) -> tuple[Model, dict[int, tuple[int, ...]]]:
    """A model in which every tensor is filled with its own number, and the shapes of the tensors by number."""
    model, shapes = Model(spec.model, spec.losses, spec.vocab_size, seed=0), dict[int, tuple[int, ...]]()
    inside = shapes_of(model)
    for name, parameter in model.named_parameters():
        for tensor in parameter.detach().split([length for length, *_ in inside[name]]):
            shapes[len(shapes) + 1] = tuple(tensor.shape)
            tensor.fill_(len(shapes))
    return model, shapes


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", NETS)
def test_each_tensor_of_transformers_is_a_separate_tensor_of_ours(
    name: str, vocabs: list[Path], tmp_path: Path
) -> None:
    model, shapes = numbered(NETS[name])
    to_transformers(weights(model), model.spec, vocabs[pad_of(model.spec.model)], tmp_path)
    met: set[int] = set()
    for theirs, tensor in loaded(tmp_path).named_parameters():
        numbers = {int(number) for number in tensor.unique()}
        if expected := [number for name, number in ONE_THERE.items() if name in theirs]:
            assert [len(numbers)] == expected, theirs
        elif len(numbers) > 1:
            assert theirs.endswith(FIXED), theirs
            continue
        else:
            (number,) = numbers
            assert tensor.numel() == math.prod(shapes[number]), (
                f"{theirs} is {list(tensor.shape)}, ours {shapes[number]}"
            )
        met |= numbers
    first = {parameter.detach().flatten()[0].item(): ours for ours, parameter in model.named_parameters()}
    assert all(first[number].startswith(NOT_EXPORTED) for number in shapes.keys() - met if number in first)
    assert name == "electra" or met == shapes.keys()


def test_every_format_is_tested(vocabs: list[Path]) -> None:
    found = {
        format.model_type
        for spec in NETS.values()
        for format in FORMATS
        if format.architecture(spec, pad_of(spec.model)) is not None
    }
    assert found == {format.model_type for format in FORMATS}


def test_a_fused_parameter_without_its_shapes_fails_the_comparison(
    vocabs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.architectures.fused.FusedLinear.list_fused", lambda self: {})
    with pytest.raises(AssertionError, match=r"query\.weight is"):
        test_each_tensor_of_transformers_is_a_separate_tensor_of_ours("bert", vocabs, tmp_path)
