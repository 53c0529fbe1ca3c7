"""Heads from losses."""

import inspect
from dataclasses import replace

from torch import nn

from preprocessing.errors import MiscountedWeights
from training.architectures import add_modules
from training.losses.part import LossPart
from training.specs import Architecture


def build_head(loss: LossPart, trunk: Architecture, vocab_size: int) -> nn.Module:
    """The head of a loss, with a module for each tensor that the loss declares, and no other weights.

    >>> from training.losses import NextToken
    >>> from training.specs import Decoder
    >>> decoder = Decoder(num_hidden_layers=1, hidden_size=8, num_attention_heads=1)
    >>> [tuple(weight.shape) for weight in build_head(NextToken(bias=True), decoder, 50).parameters()]
    [(50,)]
    """
    head = loss.head(trunk, vocab_size)
    if own := [name for name, _ in head.named_parameters()]:
        raise MiscountedWeights(
            f"{inspect.getfile(type(loss))}: the head of loss {loss.kind} creates {own[0]}; declare it in `tensors`"
        )
    for tensor in loss.tensors(trunk, vocab_size).outside:
        place, _, name = tensor.name.rpartition(".")
        add_modules(head.get_submodule(place), (replace(tensor, name=name),))
    return head
