"""What a format of transformers is, and what most are made of: tables of our names and keys, and theirs."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from preprocessing.tokenization import Vocab
from training.losses import Loss
from training.model import ModelSpec
from training.specs import Stack

Weights = Mapping[str, Tensor]
Config = Mapping[str, Any]
Names = Mapping[str, Sequence[str]]
"""Our modules and theirs. * is the number of the block; where they have several, ours is theirs stacked."""


class TransformersPipeline(NamedTuple):
    """What the pipelines of transformers do with a net of ours."""

    task: str  # theirs: fill-mask, text-generation, ...
    model_class: str  # that the task wants; it may leave out heads of the class that computes the same
    lacks: str = ""  # what cannot be done with it, in words; empty: nothing


ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


class ModelFormat(Protocol):
    """A model type of transformers, a module of this folder: which of our nets it computes, and how it names all."""

    @property
    def model_type(self) -> str: ...

    @property
    def pooler(self) -> str:
        """Their linear over the first token that the class without heads has, trained or not; "" where it has none."""

    @property
    def by_layer(self) -> bool:
        """Whether their tensors of a layer are made of ours of that layer alone, and the others without any layer."""

    def architecture(self, spec: ModelSpec, pad: int | None, /) -> str | None:
        """The class of transformers that computes what `spec` computes, None where this type has none."""

    def config(self, spec: ModelSpec, vocab: Vocab, /) -> dict[str, Any]:
        """config.json, but for the keys that all have (see export.py), of which it may give others."""

    def pipeline(self, config: Config, /) -> TransformersPipeline:
        """What a pipeline does with the net that our config.json describes."""

    def spec(self, config: Config, tensors: Weights, /) -> ModelSpec:
        """What their folder describes. KeyError, TypeError or ValueError where that is no net that we build."""

    def theirs(self, state: Weights, spec: ModelSpec, /) -> dict[str, Tensor]:
        """Our tensors as they have them."""

    def ours(self, tensors: Weights, spec: ModelSpec, wanted: Iterable[str], /) -> dict[str, Tensor]:
        """Theirs as we have them, those in `wanted`. KeyError with the name of a tensor that is missing."""


def rename(state: Weights, names: Names, input_first: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """Each of our tensors as one of theirs, or as the several that it is made of."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in state.items():
        theirs = their_names(name, names)
        for piece_name, piece in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            tensors[piece_name] = (piece.T if piece_name.endswith(input_first) else piece).contiguous()
    return tensors


def gather(
    tensors: Weights, names: Names, wanted: Iterable[str], input_first: tuple[str, ...] = ()
) -> dict[str, Tensor]:
    """Our tensors `wanted`, each from the one or the several of theirs that it is made of."""
    state: dict[str, Tensor] = {}
    for name in wanted:
        pieces = [(theirs, tensors[theirs]) for theirs in their_names(name, names)]
        state[name] = torch.cat([piece.T if theirs.endswith(input_first) else piece for theirs, piece in pieces])
    return state


def their_names(ours: str, names: Names) -> list[str]:
    """
    >>> their_names("trunk.blocks.7.attention.out.bias", {"trunk.blocks.*.attention.out": ["h.*.attn.c_proj"]})
    ['h.7.attn.c_proj.bias']
    """
    module, _, leaf = ours.rpartition(".")
    number = "".join(re.findall(r"\d+", module))
    return [f"{name.replace('*', number)}.{leaf}" for name in names[re.sub(r"\d+", "*", module)]]


def add_prefix(names: Names, old: str, new: str) -> dict[str, list[str]]:
    """The same table with another prefix of theirs.

    >>> add_prefix({"trunk.tokens": ["bert.embeddings.word_embeddings"]}, "bert.", "ernie.")
    {'trunk.tokens': ['ernie.embeddings.word_embeddings']}
    """
    return {ours: [re.sub(f"^{re.escape(old)}", new, name) for name in theirs] for ours, theirs in names.items()}


def masked_lm_pipeline(config: Config) -> TransformersPipeline:
    """
    >>> masked_lm_pipeline({"architectures": ["BertForPreTraining"]})
    TransformersPipeline(task='fill-mask', model_class='BertForMaskedLM', lacks='')
    """
    return TransformersPipeline("fill-mask", config["architectures"][0].replace("ForPreTraining", "ForMaskedLM"))


def causal_pipeline(config: Config) -> TransformersPipeline:
    """
    >>> causal_pipeline({"architectures": ["GPT2LMHeadModel"]}).task
    'text-generation'
    """
    return TransformersPipeline("text-generation", config["architectures"][0])


def their_keys(trunk: Stack, keys: Mapping[str, str]) -> dict[str, Any]:
    """What config.json says of the values in `keys` (our key, dotted where it is of a part inside, -> theirs)."""
    config = {theirs: attrgetter(ours)(trunk) for ours, theirs in keys.items()}
    if "intermediate_size" in keys:
        config[keys["intermediate_size"]] = trunk.inner_width
    if "activation" in keys:
        config[keys["activation"]] = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == trunk.activation)
    return config


def our_keys(config: Config, keys: Mapping[str, str], built_in: Config) -> dict[str, Any]:
    """The values that config.json gives by our keys; one that it leaves out must have the same default on both sides.

    ValueError where a key of `built_in`, what their class can do and our net does not, has another value than there.
    """
    for key, allowed in built_in.items():
        if config.get(key, allowed) != allowed:
            raise ValueError(f"{key} is {config[key]!r}, allowed is {allowed!r}")
    found = {ours: config[theirs] for ours, theirs in keys.items() if config.get(theirs) is not None}
    if "activation" in found:
        found["activation"] = ACTIVATIONS[found["activation"]]
    return found


def losses_in(tensors: Weights, names: Names, candidates: Collection[Loss]) -> tuple[Loss, ...]:
    """Those of the candidates whose heads have tensors in a file."""
    heads = {ours.split(".")[1] for ours, theirs in names.items() if f"{theirs[0]}.weight" in tensors}
    return tuple(loss for loss in candidates if loss.head_name in heads)


def kinds_of(spec: ModelSpec) -> set[str]:
    """The kinds of the losses of a net."""
    return {loss.kind for loss in spec.losses}
