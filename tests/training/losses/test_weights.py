"""The weights of each head by name, and the limits of loss keys that set their sizes."""

import pytest
import torch

from training.losses import (
    Adversarial,
    Loss,
    MaskedTokens,
    NextToken,
    ReplacedTokenDetection,
    SentencePair,
    SpanBoundary,
)
from training.losses.heads import build_head
from training.specs import Encoder, EncoderDecoder, GeneratorDiscriminator

ENCODER = Encoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4, embedding_size=16)
TWIN = GeneratorDiscriminator(num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
TRANSFORM = {"transform.weight": (16, 32), "transform.bias": (16,), "norm.weight": (16,), "norm.bias": (16,)}
VOCAB = 50
BIAS = {"bias": (VOCAB,)}


@pytest.mark.parametrize(
    ("loss", "shapes"),
    [
        (MaskedTokens(), BIAS | TRANSFORM),
        (MaskedTokens(transform=False), BIAS),
        (NextToken(), {}),
        (NextToken(bias=True), BIAS),
        (
            SentencePair(),
            {"pooler.weight": (32, 32), "pooler.bias": (32,), "classify.weight": (2, 32), "classify.bias": (2,)},
        ),
        (
            ReplacedTokenDetection(),
            {"transform.weight": (32, 32), "transform.bias": (32,), "classify.weight": (1, 32), "classify.bias": (1,)},
        ),
        (
            SpanBoundary(max_pair_targets=7, position_embedding_size=5),
            {
                "offsets.weight": (7, 5),
                "first.weight": (32, 69),
                "first.bias": (32,),
                "first_norm.weight": (32,),
                "first_norm.bias": (32,),
                "second.weight": (16, 32),
                "second.bias": (16,),
                "second_norm.weight": (16,),
                "second_norm.bias": (16,),
                "bias": (VOCAB,),
            },
        ),
    ],
    ids=lambda case: case.kind if hasattr(case, "kind") else "",
)
def test_weights_of_a_head_are_exactly_these(loss: Loss, shapes: dict[str, tuple[int, ...]]) -> None:
    with torch.device("meta"):
        head = build_head(loss, ENCODER, VOCAB)
    assert {name: tuple(weight.shape) for name, weight in head.named_parameters()} == shapes


@pytest.mark.parametrize(
    "loss",
    [
        ReplacedTokenDetection(predict="original"),
        ReplacedTokenDetection(predict="original", predict_at="masked"),
        Adversarial(),
    ],
)
def test_a_head_of_electra_is_as_wide_as_its_model(loss: Loss) -> None:
    with torch.device("meta"):
        head = build_head(loss, TWIN, VOCAB)
    width = TWIN.net("generator" if loss.kind == "adversarial" else "discriminator").hidden_size
    transforms = [weight.shape[1] for name, weight in head.named_parameters() if name.endswith("transform.weight")]
    assert transforms == [width]


@pytest.mark.parametrize("bias", [False, True])
def test_the_transform_has_the_biases_and_the_norm_of_its_trunk(bias: bool) -> None:
    trunk = EncoderDecoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4, bias=bias, norm_type="rmsnorm")
    head = build_head(MaskedTokens(), trunk, VOCAB)
    biases = {"bias", "transform.bias"} if bias else {"bias"}
    assert {name for name, _ in head.named_parameters()} == {"transform.weight", "norm.weight"} | biases
    assert isinstance(head.norm, torch.nn.RMSNorm)
    assert head.norm.eps == trunk.norm_eps


@pytest.mark.parametrize("embedding_size", [0, 16])
def test_the_head_of_a_frozen_generator_has_the_tensors_that_the_architecture_declares(embedding_size: int) -> None:
    sizes = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4, "embedding_size": embedding_size}
    twin = GeneratorDiscriminator(**sizes, sample_from="frozen", generator_size_ratio=1.0)
    declared = {one.name: one.shape for one in twin.tensors(VOCAB).parameters() if one.name.startswith("frozen.head.")}
    head = build_head(MaskedTokens(), twin, VOCAB)
    assert declared == {f"frozen.head.{name}": tuple(weight.shape) for name, weight in head.named_parameters()}


@pytest.mark.parametrize("key", ["max_pair_targets", "position_embedding_size"])
def test_span_boundary_sizes_are_at_least_one(key: str) -> None:
    assert getattr(SpanBoundary(**{key: 1}), key) == 1
    with pytest.raises(ValueError, match=rf"invalid losses\.{key}: got 0, expected an integer of at least 1"):
        SpanBoundary(**{key: 0})


def test_without_a_transform_the_states_are_multiplied_with_the_table_directly() -> None:
    trunk = Encoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
    head = build_head(MaskedTokens(transform=False), trunk, VOCAB)
    hidden_MD = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(head.features(hidden_MD), hidden_MD)
