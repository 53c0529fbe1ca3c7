"""Tables that map the names of our tensors to those of transformers."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # formats are imported without torch
    from torch import Tensor

    from training.specs import Architecture

Weights = Mapping[str, "Tensor"]
Tensors = dict[str, "Tensor"]
Names = Mapping[str, Sequence[str]]
"""Maps our modules, or single tensors with their full name, to those of transformers. * is the layer index. If there
are several names, our tensor is the concatenation of theirs."""


Piece = Callable[[str, str, "Tensor"], "Tensor"]
"""Converts a tensor of transformers, or the part of ours that corresponds to it, given our name and theirs."""


class Reshape(NamedTuple):
    """Conversion of tensors with another shape or order in transformers; both functions get our name of the tensor.

    If our tensor is the concatenation of several of theirs, each is converted separately.
    """

    to_theirs: Callable[[str, "Tensor", "Architecture"], "Tensor"]
    to_ours: Callable[[str, "Tensor", "Architecture"], "Tensor"]


def their_names(ours: str, names: Names) -> list[str]:
    """
    >>> their_names("trunk.blocks.7.attention.out.bias", {"trunk.blocks.*.attention.out": ["h.*.attn.c_proj"]})
    ['h.7.attn.c_proj.bias']
    >>> their_names("trunk.blocks.3.attention.segments", {"trunk.blocks.*.attention.segments": ["layer.*.seg_embed"]})
    ['layer.3.seg_embed']
    """
    number = "".join(re.findall(r"\d+", ours))
    place = re.sub(r"\d+", "*", ours)
    module, _, leaf = place.rpartition(".")
    theirs = names[place] if place in names else [f"{name}.{leaf}" for name in names[module]]
    return [name.replace("*", number) for name in theirs]


def keep_piece(ours: str, theirs: str, piece: "Tensor") -> "Tensor":
    """The tensor unchanged."""
    return piece


def rename(state: Weights, names: Names, fused: Mapping[str, Sequence[int]], to_theirs: Piece) -> Tensors:
    """Rename our tensors to theirs; split a tensor that corresponds to several of theirs.

    `fused` has the lengths of the parts by our names; other tensors have equal parts.
    """
    tensors: Tensors = {}
    for ours, tensor in state.items():
        theirs, lengths = their_names(ours, names), fused.get(ours, ())
        pieces = tensor.split(list(lengths)) if len(lengths) == len(theirs) else tensor.chunk(len(theirs))
        for name, piece in zip(theirs, pieces, strict=True):
            tensors[name] = to_theirs(ours, name, piece).contiguous()
    return tensors


def gather(tensors: Weights, names: Names, wanted: Iterable[str], to_ours: Piece) -> Tensors:
    """Return our tensors `wanted`; concatenate those that correspond to several of theirs."""
    import torch

    state: Tensors = {}
    for ours in wanted:
        pieces = [to_ours(ours, name, tensors[name]) for name in their_names(ours, names)]
        state[ours] = torch.cat(pieces).contiguous()
    return state


def add_prefix(names: Names, old: str, new: str) -> dict[str, list[str]]:
    """Replace the prefix of the names of transformers.

    >>> add_prefix({"trunk.tokens": ["bert.embeddings.word_embeddings"]}, "bert.", "ernie.")
    {'trunk.tokens': ['ernie.embeddings.word_embeddings']}
    """
    return {ours: [re.sub(f"^{re.escape(old)}", new, name) for name in theirs] for ours, theirs in names.items()}


def without_heads_in(names: Names) -> dict[str, Sequence[str]]:
    """The names of the trunk."""
    return {ours: theirs for ours, theirs in names.items() if ours.startswith("trunk.")}


def is_of_task(tensors: Collection[str]) -> bool:
    """Whether tensors have a task head, by the names that the classes of transformers have in common.

    >>> is_of_task(["bert.pooler.dense.weight", "classifier.weight"]), is_of_task(["cls.predictions.bias"])
    (True, False)
    """
    heads = ("classifier.", "qa_outputs.", "score.", "logits_proj.", "sequence_summary.")
    return any(name.startswith(heads) for name in tensors)
