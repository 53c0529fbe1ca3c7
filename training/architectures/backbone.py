"""What all nets share: states, the token table, scores, a summary of a row, and what is kept between batches."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn

from preprocessing.errors import BadInput
from training.architectures.cache import KVCache
from training.architectures.linears import Table
from training.architectures.parameter_slices import ParameterSlice
from training.architectures.pipeline_stages import ONLY, PipelineStage, StageInputs
from training.score import Score
from training.specs import Architecture, Init, LossFacts

T = TypeVar("T")  # a weight, or what gives it

MaskHead = Callable[[Architecture, int], nn.Module]
"""Makes the head that fills in masks on a trunk with so many rows of its token table."""


class Backbone(nn.Module):
    """A trunk as a module. Axes: B rows, S tokens of a row or T of an unpadded batch, D width, V rows of the table."""

    trunk: Architecture
    frozen_modules: ClassVar[tuple[str, ...]] = ()  # those whose weights never change
    # by the name in the model, of the parameters that are split over workers what this one has
    cuts: Mapping[str, ParameterSlice] = MappingProxyType({})
    stage: PipelineStage = ONLY  # which of its layers are here

    @classmethod
    @abstractmethod
    def build(cls, trunk: Architecture, vocab_size: int, mask_head: MaskHead) -> Self | None:
        """The net of a trunk, None where that is of another class. A head that it needs inside is made by `mask_head`:
        heads stand above nets."""

    @property
    @abstractmethod
    def table(self) -> Table | tuple[Tensor, ...]:
        """The token table [V, D], a worker's rows of it, or what an adaptive softmax needs of several. It is looked up
        at each call: ZeRO-3 gathers a partitioned tensor on attribute access."""

    @abstractmethod
    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Hidden states of a batch of preprocessing/schema.py: [B, S] -> [B, S, D] padded, [T] -> [T, D] not."""

    def owners(self, stages: int) -> Mapping[str, int]:
        """By name, the modules of which one of so many stages has all, with its number; the others are the first's."""
        raise NotImplementedError("ask stages_over of its trunk first")

    def passed_on(self, batch: Mapping[str, Tensor], given: StageInputs) -> Tensor:
        """The states behind the layers of this stage; those behind the last layer as `forward` gives them."""
        raise NotImplementedError("ask stages_over of its trunk first")

    def states(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Hidden states as `forward` gives them, without what is done to them for the comparison with the table."""
        return self(batch)

    def next_states(self, batch: Mapping[str, Tensor]) -> Tensor:
        """What predicts the token behind each row of a padded batch, [B, D]. BadInput: this net predicts none."""
        if self.trunk.attention_mask != "causal":
            raise no_writer(self.trunk)
        return self(batch).flatten(0, -2)[last_at(batch)]

    def begin(self, batch: Mapping[str, Tensor]) -> KVCache:
        """An empty cache for the rows of a padded batch; a source is read here. BadInput: this net writes nothing."""
        raise no_writer(self.trunk)

    def go_on(self, batch: Mapping[str, Tensor], cache: KVCache) -> tuple[Tensor, KVCache]:
        """What predicts the token behind each new one, [B, S, D], and the cache with the new tokens behind its own.

        The batch is padded and has the new tokens alone: `positions` are `cache.positions`, `lengths` count new tokens.
        """
        raise no_writer(self.trunk)

    def begin_seeing(self, batch: Mapping[str, Tensor]) -> KVCache | None:
        """An empty cache for rows whose tokens see what `go_on_seeing` is told; None where it has none."""
        return None

    def go_on_seeing(self, batch: Mapping[str, Tensor], cache: KVCache, seen_BSC: Tensor) -> tuple[Tensor, KVCache]:
        """The states [B, S, D] of new tokens, each of which sees the slots of its row that `seen_BSC` (bool) says, and
        the cache with their keys and values in it, its lengths as they were: who asked says which of them stay."""
        raise NotImplementedError("ask begin_seeing first")

    @property
    def takes_mask(self) -> bool:
        """Whether it has `masked_states`."""
        return False

    def masked_states(self, batch: Mapping[str, Tensor], seen_BSS: Tensor) -> Tensor:
        """Hidden states [B, S, D] of a padded batch, each token attending to those that `seen_BSS` (bool) says."""
        raise NotImplementedError("ask takes_mask first")

    @property
    @abstractmethod
    def layers(self) -> tuple[nn.Module, ...]:
        """Its layers, from the lowest to the highest; of two sides, those of the source come first."""

    @property
    def above_layers(self) -> Mapping[str, int]:
        """What follows the last layer of a side, by the beginning of its name: the number of layers below it."""
        return {}

    def depths(self) -> dict[str, int]:
        """By the name of each parameter of the net: 0 of the tables, i + 1 of layer i, counted from 0.

        What several layers share has the depth of the highest of them; a norm behind the last layer has that layer's.
        """
        of = {id(tensor): number for number, layer in enumerate(self.layers, 1) for tensor in layer.parameters()}
        found = {name: of.get(id(tensor), 0) for name, tensor in self.named_parameters()}
        for beginning, depth in self.above_layers.items():
            found |= {name: depth for name in found if name.startswith(f"{beginning}.")}
        return found

    def layer_states(self, batch: Mapping[str, Tensor]) -> list[Tensor]:
        """What the first layer reads, then what each layer gives; the last one as `states` gives it.

        Of a decoder with a source, its own layers. All are in the layout of the batch.
        """
        own = self.layers[-self.trunk.num_hidden_layers :]
        found: list[Tensor] = []
        hooks = [
            own[0].register_forward_pre_hook(lambda _layer, given: found.append(first_of(given))),
            *(layer.register_forward_hook(lambda _layer, _given, made: found.append(first_of(made))) for layer in own),
        ]
        try:
            last = self.states(batch)
        finally:
            for hook in hooks:
                hook.remove()
        return [*(self.as_batch(x, batch) for x in found[:-1]), last]

    def as_batch(self, x: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """States of a layer in the layout of their batch."""
        return x

    @abstractmethod
    def summary_at(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Flat index [B] of the state that sums up each row, for a classifier."""

    def summary(self, batch: Mapping[str, Tensor]) -> Tensor:
        """One state [B, D] for each row, for a classifier."""
        return self.states(batch).flatten(0, -2)[self.summary_at(batch)]

    def scores(
        self, batch: Mapping[str, Tensor], heads: nn.ModuleDict, losses: Sequence[LossFacts]
    ) -> dict[str, Score]:
        """Score of each loss, by its kind; `heads` by their `head_name`."""
        hidden, table = self(batch), self.table
        return {loss.kind: heads[loss.head_name](hidden, batch, table) for loss in losses}

    def std(self, name: str) -> float:
        """Deviation that a tensor begins with, by its name in the model: `trunk.` and its own, or that of a head."""
        return self.trunk.init_std

    def init(self, name: str) -> Init:
        """What a matrix or a table begins with, by its name in the model."""
        return self.trunk.init_method

    @property
    def gain_std(self) -> float:
        """Deviation from 1 that the gains of norms begin with."""
        return 0.0

    def memory_state(self) -> dict[str, Tensor]:
        """What the rows of training go on from, by names for a file; empty where there is no memory."""
        return {}

    def load_memory_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Take over what `memory_state` gave, in place of all else."""

    def taken_over(self, state: Mapping[str, T], theirs: Architecture) -> dict[str, T]:
        """The weights of a net of another trunk, `theirs`, by the names that they have in this one."""
        return dict(state)


def no_writer(trunk: Architecture) -> BadInput:
    """Why a net does not write from left to right."""
    given = f"generate: the attention of this {trunk.kind} is {trunk.attention_mask!r}, allowed is 'causal'"
    return BadInput(f"{given}: give a net that predicts the next token, such as a decoder")


def first_of(given: Any) -> Tensor:
    """The first tensor that a layer takes or gives: of several streams of states, that of the content."""
    return given if isinstance(given, Tensor) else first_of(given[0])


def last_at(batch: Mapping[str, Tensor]) -> Tensor:
    """Flat index [B] of the last token of each row."""
    return batch["first_at"] + batch["lengths"].to(batch["first_at"].device) - 1
