"""Tables of keys and names, also the forms that no format needs yet: groups of heads, nested keys, several keys."""

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from preprocessing.spec import spec
from training.formats.format import Format, ModelClass
from training.formats.gpt2 import GPT2
from training.formats.keys import Key, Keys, choice, read_keys, write_keys
from training.formats.names import Names, Reshape, gather, keep_piece, rename
from training.losses import MaskedTokens, NextToken, SentencePair
from training.model_spec import ModelSpec
from training.specs import Architecture, Decoder, Encoder, LearnedPositions

SIZES: dict[str, Any] = {"num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 2}
TRUNK = Decoder(**SIZES, position_embedding=LearnedPositions(max_position_embeddings=16))
SPEC = ModelSpec(model=TRUNK, losses=(NextToken(),), vocab_size=20)
NAMES: Names = {"trunk.blocks.*.attention.qkv": [f"layers.*.{x}_proj" for x in "qkv"]}


@spec
class FocalTokens(MaskedTokens):
    """A loss of a user with the head of another one."""

    kind: Literal["focal"] = "focal"  # type: ignore[assignment]
    gamma: float = 2.0


def test_queries_keys_and_values_of_other_lengths_are_separated_and_joined() -> None:
    """As with fewer heads of keys and values than of queries."""
    ours = {"trunk.blocks.2.attention.qkv.weight": torch.arange(8.0)[:, None] * torch.ones(8, 3)}
    theirs = rename(ours, NAMES, {"trunk.blocks.2.attention.qkv.weight": (4, 2, 2)}, keep_piece)
    assert {name: len(tensor) for name, tensor in theirs.items()} == {
        "layers.2.q_proj.weight": 4,
        "layers.2.k_proj.weight": 2,
        "layers.2.v_proj.weight": 2,
    }
    back = gather(theirs, NAMES, ours, keep_piece)
    assert all(torch.equal(tensor, back[name]) for name, tensor in ours.items())


def _by_head(name: str, tensor: Tensor, trunk: Architecture) -> Tensor:
    """Queries, keys and values of each head together, as in GPT-NeoX."""
    if ".qkv." not in name:
        return tensor
    return tensor.unflatten(0, (3, trunk.num_attention_heads, -1)).transpose(0, 1).flatten(0, 2)


def _by_kind(name: str, tensor: Tensor, trunk: Architecture) -> Tensor:
    if ".qkv." not in name:
        return tensor
    return tensor.unflatten(0, (trunk.num_attention_heads, 3, -1)).transpose(0, 1).flatten(0, 2)


def test_tensors_of_another_order_are_converted_both_ways() -> None:
    format = replace(
        GPT2,
        names={"trunk.blocks.*.attention.qkv": ["layers.*.query_key_value"]},
        transposed=(),
        reshape=Reshape(_by_head, _by_kind),
    )
    ours = {"trunk.blocks.1.attention.qkv.bias": torch.arange(24.0)}
    theirs = format.theirs(ours, SPEC)
    expected = [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23]
    assert theirs["layers.1.query_key_value.bias"].tolist() == expected
    back = format.ours(theirs, SPEC, ours)
    assert all(torch.equal(tensor, back[name]) for name, tensor in ours.items())


def _write_kinds(values: tuple[int, str]) -> tuple[int, list[str]]:
    layers, kind = values
    return layers, [kind] * layers


def _read_kinds(layers: int, kinds: list[str]) -> tuple[int, str]:
    return layers, kinds[0]


KEYS: Keys = {
    "hidden_size": "width",
    ("num_hidden_layers", "attention_window.kind"): Key(("layers", "layer_types"), _write_kinds, _read_kinds),
    "norm_eps": "norm.parameters.eps",
    ("activation", "norm_position"): choice("act", {"gated-gelu": ("gelu_tanh", "pre"), "relu": ("relu", "post")}),
}


def test_nested_keys_and_several_keys_together_are_written_and_read() -> None:
    config = write_keys(TRUNK, KEYS)
    assert config == {
        "width": 8,
        "layers": 3,
        "layer_types": ["full"] * 3,
        "norm.parameters.eps": 1e-5,
        "act": "gated-gelu",
    }
    nested: dict[str, Any] = {**config, "norm": {"parameters": {"eps": 1e-6}}}
    assert read_keys(nested, KEYS) == {
        "hidden_size": 8,
        "num_hidden_layers": 3,
        "attention_window.kind": "full",
        "norm_eps": 1e-6,
        "activation": "gelu_tanh",
        "norm_position": "pre",
    }
    with pytest.raises(ValueError, match=r"invalid act: got no value for \('relu', 'pre'\), expected"):
        write_keys(replace(TRUNK, activation="relu"), KEYS)


def nested_format() -> Format:
    """GPT-2 with a nested key, which older files have outside, and a nested key with one supported value."""
    return replace(
        GPT2,
        keys={**GPT2.keys, "norm_eps": "norm_parameters.eps"},
        built_in={**GPT2.built_in, "norm_parameters.type": "layer"},
        defaults={**GPT2.defaults, "norm_parameters.eps": 1e-3, "norm_parameters.type": "rms"},
        old_keys={"norm_eps": "norm_parameters.eps"},
    )


def test_nested_keys_of_a_format_are_written_read_and_refused() -> None:
    format = nested_format()
    assert format.architecture(SPEC, None) == "GPT2LMHeadModel"
    config = format.config(SPEC, None)  # type: ignore[arg-type]  # it has no special tokens
    assert config["norm_parameters"] == {"eps": 1e-5, "type": "layer"}
    assert format.read(config).norm_eps == 1e-5
    with pytest.raises(ValueError, match=r"invalid norm_parameters\.type: got 'rms', expected 'layer'"):
        format.read(config | {"norm_parameters": {"eps": 1e-5, "type": "rms"}})
    older = {key: value for key, value in config.items() if key != "norm_parameters"} | {"norm_eps": 1e-4}
    assert replace(format, built_in=GPT2.built_in).read(older).norm_eps == 1e-4


def test_a_class_is_chosen_by_the_heads_of_the_losses() -> None:
    """A loss of another kind has the head if its name, its predictions and its weights are the same."""
    assert ModelClass("A", (NextToken(),)).has_heads_of(SPEC)
    assert ModelClass("A", (NextToken(weight=2.0),)).has_heads_of(SPEC)
    assert not ModelClass("A", (NextToken(bias=True),)).has_heads_of(SPEC)
    focal = replace(SPEC, model=Encoder(**SIZES), losses=(FocalTokens(),))
    assert ModelClass("A", (MaskedTokens(),)).has_heads_of(focal)
    assert not ModelClass("A", (MaskedTokens(transform=False),)).has_heads_of(focal)
    assert not ModelClass("A", (MaskedTokens(), SentencePair())).has_heads_of(focal)
