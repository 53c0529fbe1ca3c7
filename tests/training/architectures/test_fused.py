"""Queries, keys and values in one parameter are initialized and updated like separate tensors, as are all fused
weights."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.architectures.test_facts import ADAPTIVE, TRUNKS
from tests.training.batches import collate_unpadded, random_rows
from tests.training.encoder_decoders import PEGASUS, T5
from training.architectures import FusedModule, build
from training.architectures.fused import FusedLinear
from training.losses import Loss, MaskedTokens, NextToken, ReplacedTokenDetection
from training.model import Model, parameter_groups, shapes_of
from training.optimizers import Adafactor, Lamb
from training.specs import (
    Architecture,
    Decoder,
    Encoder,
    EncoderDecoder,
    GeneratorDiscriminator,
    LearnedPositions,
    RelativePositions,
    SlidingWindow,
    TwoStream,
    TwoStreamRelativePositions,
)

COUNTS = {
    "qkv": 3,
    "key_value": 2,
    "global_key_value": 2,
    "up": 2,
}  # number of tensors in the linear layers of these names


@pytest.mark.parametrize("trunk", TRUNKS, ids=lambda trunk: trunk.describe())
def test_fused_linears_have_the_same_number_of_tensors_in_every_model(trunk: Architecture) -> None:
    """tests/training/formats/test_fused.py compares these names with the tensors of transformers."""
    with torch.device("meta"):
        net = build(trunk, 50, MaskedTokens().head)
    is_gated = trunk.feed_forward.kind == "gated"  # otherwise `up` is one linear layer
    counted = COUNTS if is_gated else {name: count for name, count in COUNTS.items() if name != "up"}
    found = {name: module for name, module in net.named_modules() if name.rpartition(".")[2] in counted}
    assert found
    for name, module in found.items():
        assert isinstance(module, FusedLinear), name
        assert len(module.lengths) == COUNTS[name.rpartition(".")[2]], name
    assert {name for name, module in net.named_modules() if isinstance(module, FusedModule)} == found.keys()


# The information for the optimizers.


def model_of(trunk: Architecture, vocab_size: int = 50) -> Model:
    """A model with losses that fit the trunk."""
    losses: tuple[Loss, ...] = (MaskedTokens(),)
    if isinstance(trunk, Decoder | EncoderDecoder):
        losses = (NextToken(bias=bool(trunk.cutoffs)),)
    elif isinstance(trunk, GeneratorDiscriminator):
        losses = (MaskedTokens(), ReplacedTokenDetection())
    return Model(trunk, losses, vocab_size, seed=0)


def test_parameter_groups_name_the_tensors_in_a_parameter() -> None:
    model = model_of(Encoder(num_hidden_layers=1, hidden_size=8, num_attention_heads=2))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, 0.01)
    shapes = {
        names[id(parameter)]: inside
        for group in groups
        for parameter, inside in zip(group["params"], group["shapes"], strict=True)
    }
    assert shapes == shapes_of(model)
    assert shapes.keys() == dict(model.named_parameters()).keys()
    assert shapes["trunk.blocks.0.attention.qkv.weight"] == [(8, 8)] * 3
    assert shapes["trunk.blocks.0.attention.qkv.bias"] == [(8,)] * 3
    assert shapes["trunk.tokens.weight"] == [(50, 8)]
    several = [name for name, inside in shapes.items() if len(inside) > 1]
    assert all("qkv" in name for name in several)


def test_shared_weights_are_listed_once() -> None:
    model = model_of(Encoder(num_hidden_layers=3, hidden_size=8, num_attention_heads=2, parameter_sharing="all"))
    assert shapes_of(model).keys() == dict(model.named_parameters()).keys()


def test_biases_of_clusters_are_separate_tensors_if_their_tables_are() -> None:
    trunk = Decoder(
        num_hidden_layers=1,
        hidden_size=8,
        num_attention_heads=2,
        norm_position="post",
        position_embedding=RelativePositions(),
        token_embedding=ADAPTIVE,
    )
    assert shapes_of(model_of(trunk))["heads.next_token.bias"] == [(10,), (10,), (30,)]
    one_table = replace(trunk, token_embedding=replace(ADAPTIVE, div_val=1))
    assert shapes_of(model_of(one_table))["heads.next_token.bias"] == [(50,)]


# An optimizer step, compared with the formulas of the papers.

BERT = Encoder(
    num_hidden_layers=2,
    hidden_size=128,
    num_attention_heads=2,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    hidden_dropout=0.0,
    attention_dropout=0.0,
    init_method="truncated_normal",
)


def with_gradients(trunk: Architecture = BERT) -> Model:
    model = model_of(trunk, 300)
    model(collate_unpadded(random_rows([12, 16, 9], 300)))["masked_tokens"].loss.backward()
    return model


def queries_keys_values(model: Model) -> list[tuple[str, Tensor, Tensor]]:
    """Name, weight and gradient of the queries, keys and values of all layers, as transformers has them."""
    return [
        (f"{number} {x}", weight.clone(), gradient)
        for number, block in enumerate(model.trunk.blocks)  # type: ignore[arg-type]
        for x, weight, gradient in zip(
            "qkv",
            block.attention.qkv.weight.detach().chunk(3),
            block.attention.qkv.weight.grad.chunk(3),
            strict=True,
        )
    ]


def after_step(model: Model, optim: Lamb | Adafactor) -> list[tuple[str, Tensor, Tensor, Tensor]]:
    """Name, weight, gradient and update of the queries, keys and values, after one optimizer step."""
    before = queries_keys_values(model)
    optim.build(parameter_groups(model, optim.weight_decay)).step()
    return [
        (name, old, gradient, new - old)
        for (name, old, gradient), (_, new, _) in zip(before, queries_keys_values(model), strict=True)
    ]


def test_lamb_scales_the_updates_of_queries_keys_and_values_separately() -> None:
    optim = Lamb(learning_rate=0.004)
    for name, weight, gradient, moves in after_step(with_gradients(), optim):
        mean, square = (1 - optim.beta1) * gradient, (1 - optim.beta2) * gradient**2
        update = mean / (square.sqrt() + optim.eps) + optim.weight_decay * weight  # arXiv:1904.00962, algorithm 2
        wanted = -optim.learning_rate * weight.norm() / update.norm() * update
        torch.testing.assert_close(weight + moves, weight + wanted, rtol=1e-6, atol=1e-9, msg=name)
        assert float(moves.norm() / weight.norm()) == pytest.approx(0.004, rel=1e-4), name


def test_adafactor_scales_the_updates_of_queries_keys_and_values_separately() -> None:
    for name, weight, gradient, moves in after_step(with_gradients(), Adafactor(learning_rate=0.004)):
        square = gradient**2 + 1e-30  # arXiv:1804.04235, algorithms 4 and 5; the first step has no history
        factored = torch.outer(square.sum(1), square.sum(0)) / square.sum()
        update = gradient / factored.sqrt()
        wanted = -0.004 * weight.square().mean().sqrt() * update / update.square().mean().sqrt().clamp(min=1.0)
        torch.testing.assert_close(weight + moves, weight + wanted, rtol=1e-6, atol=1e-8, msg=name)


# Initialization.

SIZES: dict[str, Any] = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4}
NORMAL = 0.02  # standard deviation of BERT, GPT, XLNet and BART
CUT = 0.879626 * NORMAL  # standard deviation of a normal distribution that is truncated at two deviations
BEGIN: list[tuple[Architecture, float]] = [
    (Encoder(**SIZES), NORMAL),
    (Encoder(**SIZES, init_method="truncated_normal"), CUT),
    (Encoder(**SIZES, norm_position="pre"), NORMAL),  # only its residual projections have a smaller deviation
    (Encoder(**SIZES, attention_window=SlidingWindow(size=4, global_tokens="first")), NORMAL),
    (Decoder(**SIZES), NORMAL),
    (
        Decoder(
            **SIZES, norm_position="post", position_embedding=RelativePositions(mem_len=8), token_embedding=ADAPTIVE
        ),
        NORMAL,
    ),
    (TwoStream(**SIZES, position_embedding=TwoStreamRelativePositions()), NORMAL),
    (EncoderDecoder(**SIZES), NORMAL),
    (replace(PEGASUS, hidden_size=64, init_std=0.02), NORMAL),
    # the deviation depends on the outputs of each separate tensor
    (EncoderDecoder(**SIZES, init_method="xavier"), (2 / (64 + 64)) ** 0.5),
    (EncoderDecoder(**SIZES, head_dim=40, init_method="xavier"), (2 / (64 + 160)) ** 0.5),
    (Encoder(**SIZES, init_method="pytorch_default"), (3 * 64) ** -0.5),
    (replace(T5, hidden_size=64), 64**-0.5),  # T5: the deviation depends on the input width of each of keys and values
    (replace(T5, hidden_size=64, head_dim=40), 64**-0.5),
    (GeneratorDiscriminator(**SIZES), NORMAL),
]


@pytest.mark.parametrize(
    ("trunk", "std"), BEGIN, ids=lambda one: one.describe() if isinstance(one, Architecture) else None
)
def test_fused_tensors_are_initialized_like_separate_ones(trunk: Architecture, std: float) -> None:
    """The deviation depends on the name and on the inputs (Net.std), never on the number of tensors in a parameter."""
    model = model_of(trunk)
    shapes, looked_at = shapes_of(model), 0
    for name, parameter in model.named_parameters():
        if len(shapes[name]) == 1:
            continue
        tensors = parameter.detach().split([length for length, *_ in shapes[name]])
        if parameter.ndim == 1 and trunk.init_method != "pytorch_default":
            assert not parameter.any(), name
        if parameter.ndim == 1:
            continue
        looked_at += 1
        for tensor in tensors:
            least = 4 * std / (2 * tensor.numel()) ** 0.5  # four standard errors
            assert float(tensor.std()) == pytest.approx(std, abs=least), name
            assert float(tensor.mean()) == pytest.approx(0.0, abs=2**0.5 * least), name
        for one, other in zip(tensors[1:], tensors, strict=False):
            together = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
            assert abs(float(together)) < 4 / one.numel() ** 0.5, name
    assert looked_at


def initial_weights(trunk: Architecture, *ends: str) -> dict[str, Tensor]:
    """The initial weights whose names have one of these endings."""
    return {name: tensor.detach() for name, tensor in model_of(trunk, 300).named_parameters() if name.endswith(ends)}


def test_electra_initializes_only_tensorflow_defaults_by_glorot() -> None:
    sizes = SIZES | {"embedding_size": 32, "generator_size_ratio": 0.5}
    for init, wanted in (("truncated_normal", (2 / (32 + 64)) ** 0.5), ("normal", NORMAL)):
        found = initial_weights(GeneratorDiscriminator(**sizes, init_method=init), "discriminator.widen.weight")
        (widen,) = found.values()
        assert float(widen.std()) == pytest.approx(wanted, rel=0.1)
        (transform,) = initial_weights(
            GeneratorDiscriminator(**sizes, init_method=init), "heads.replaced.transform.weight"
        ).values()
        assert float(transform.std()) == pytest.approx(CUT if init == "truncated_normal" else NORMAL, rel=0.1)


def test_gains_are_random_in_transformer_xl_and_one_in_gpt() -> None:
    relative = torch.cat(
        list(
            initial_weights(
                Decoder(**SIZES, norm_position="post", position_embedding=RelativePositions()), "norm.weight"
            ).values()
        )
    )
    assert float(relative.std()) == pytest.approx(NORMAL, rel=0.3)
    assert float(relative.mean()) == pytest.approx(1.0, abs=0.01)
    assert all((gain == 1).all() for gain in initial_weights(Decoder(**SIZES), "norm.weight").values())


@pytest.mark.parametrize(("scaled", "share"), [(True, 0.5), (False, 1.0)])
def test_residual_projections_are_initialized_smaller_unless_disabled(scaled: bool, share: float) -> None:
    ends = ("attention.out.weight", "down.weight")
    for name, tensor in initial_weights(
        Decoder(**SIZES | {"num_hidden_layers": 2}, scale_residual_init=scaled), *ends
    ).items():
        assert float(tensor.std()) == pytest.approx(share * NORMAL, rel=0.1), name


def test_pytorch_default_draws_biases_of_linears_but_not_of_norms() -> None:
    trunk = Encoder(**SIZES, init_method="pytorch_default")
    for name, bias in initial_weights(trunk, "bias").items():
        inputs = 256 if "down" in name else 64
        if "norm" in name:
            assert not bias.any(), name
        else:
            assert 0.5 * inputs**-0.5 < float(bias.abs().max()) <= inputs**-0.5, name
    (table,) = initial_weights(trunk, "tokens.weight").values()
    assert float(table.std()) == pytest.approx(64**-0.5, rel=0.05)


def test_norms_and_biases_decay_if_all_do_and_frozen_weights_never() -> None:
    frozen = Model(
        GeneratorDiscriminator(**SIZES, generator_size_ratio=1.0, sample_from="frozen"),
        (ReplacedTokenDetection(),),
        50,
        seed=0,
    )
    for decays, wanted in (("matrices", False), ("all", True)):
        decaying, constant = parameter_groups(frozen, 0.01, decays)  # type: ignore[arg-type]  # a name of the two
        assert any(weight.ndim == 1 for weight in decaying["params"]) == wanted
        held = {id(weight) for weight in constant["params"]}
        never = [weight for name, weight in frozen.named_parameters() if name.startswith("trunk.frozen.")]
        assert never
        assert all(id(weight) in held for weight in never)


def test_a_fused_linear_is_a_linear_layer() -> None:
    fused = FusedLinear(4, (5, 5, 5))
    assert isinstance(fused, nn.Linear)
    assert (fused.in_features, fused.out_features) == (4, 15)
    assert fused.list_fused() == {"weight": (5, 5, 5), "bias": (5, 5, 5)}
