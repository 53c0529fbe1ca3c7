"""The base class of all backbones: hidden states, token table, scores, sequence summaries, generation and memory."""

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

T = TypeVar("T")  # a weight, or an object that provides it

MaskHead = Callable[[Architecture, int], nn.Module]
"""Builds the masked-token head of an architecture for a vocabulary size."""


class Backbone(nn.Module):
    """A model without its heads. `trunk` is its architecture.

    Axes: B sequences, S tokens of a sequence, T tokens of an unpadded batch, D width, V tokens of the vocabulary.
    """

    trunk: Architecture
    frozen_modules: ClassVar[tuple[str, ...]] = ()  # modules whose weights never change
    # this worker's slice of each parameter that is split over workers, by its name in the model
    cuts: Mapping[str, ParameterSlice] = MappingProxyType({})
    stage: PipelineStage = ONLY  # the pipeline stage, whose layers this worker has

    @classmethod
    @abstractmethod
    def build(cls, trunk: Architecture, vocab_size: int, mask_head: MaskHead) -> Self | None:
        """Build the backbone of an architecture; return None if this class does not implement the architecture.

        `mask_head` builds the head of a frozen generator. It is an argument because this package does not import heads.
        """

    @property
    @abstractmethod
    def table(self) -> Table | tuple[Tensor, ...]:
        """The token table [V, D], this worker's rows of it, or the tensors of an adaptive softmax.

        Each access reads the parameters again, because ZeRO-3 gathers a partitioned tensor on attribute access.
        """

    @abstractmethod
    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Hidden states of a batch (preprocessing/schema.py): padded [B, S] -> [B, S, D], unpadded [T] -> [T, D]."""

    def owners(self, stages: int) -> Mapping[str, int]:
        """Number of the pipeline stage of each module, by the module's name; other modules are on the first stage."""
        raise NotImplementedError("call stages_over of the architecture first")

    def run_stage(self, batch: Mapping[str, Tensor], inputs: StageInputs) -> Tensor:
        """Hidden states after the layers of this stage; the last stage returns what `forward` returns."""
        raise NotImplementedError("call stages_over of the architecture first")

    def states(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Hidden states like those of `forward`, without the scaling before the product with the token table."""
        return self(batch)

    def next_states(self, batch: Mapping[str, Tensor]) -> Tensor:
        """States [B, D] that predict the token after each sequence of a padded batch.

        Raises BadInput if the model does not predict the next token.
        """
        if self.trunk.attention_mask != "causal":
            raise no_writer(self.trunk)
        return self(batch).flatten(0, -2)[last_at(batch)]

    def begin(self, batch: Mapping[str, Tensor]) -> KVCache:
        """Return an empty cache for the sequences of a padded batch; an encoder reads its source here.

        Raises BadInput if the model does not generate text.
        """
        raise no_writer(self.trunk)

    def forward_cached(self, batch: Mapping[str, Tensor], cache: KVCache) -> tuple[Tensor, KVCache]:
        """Return the states [B, S, D] that predict the token after each new token, and the cache with the new tokens.

        The batch is padded and contains only new tokens: `positions` are `cache.positions`, `lengths` count new tokens.
        """
        raise no_writer(self.trunk)

    def begin_seeing(self, batch: Mapping[str, Tensor]) -> KVCache | None:
        """Return an empty cache for `go_on_seeing`; None if the model does not accept an attention mask."""
        return None

    def go_on_seeing(self, batch: Mapping[str, Tensor], cache: KVCache, seen_BSC: Tensor) -> tuple[Tensor, KVCache]:
        """Return the states [B, S, D] of new tokens, and the cache with their keys and values.

        `seen_BSC` (bool) gives the slots of its sequence to which each new token attends. The lengths of the cache stay
        unchanged: the caller decides which of the new tokens become part of their sequences.
        """
        raise NotImplementedError("call begin_seeing first")

    @property
    def takes_mask(self) -> bool:
        """Whether the class implements `compute_masked_states`."""
        return False

    def compute_masked_states(self, batch: Mapping[str, Tensor], seen_BSS: Tensor) -> Tensor:
        """Hidden states [B, S, D] of a padded batch; `seen_BSS` (bool) gives the tokens to which each token attends."""
        raise NotImplementedError("check takes_mask first")

    @property
    @abstractmethod
    def layers(self) -> tuple[nn.Module, ...]:
        """The layers, from the lowest to the highest; the layers of an encoder come before those of its decoder."""

    @property
    def above_layers(self) -> Mapping[str, int]:
        """Number of layers below each module that follows the last layer, by the module's name."""
        return {}

    def depths(self) -> dict[str, int]:
        """Depth of each parameter, by its name: 0 for the tables, i + 1 for layer i, counted from 0.

        A parameter that several layers share has the depth of the highest layer. A norm after the last layer has the
        depth of that layer.
        """
        depth_of = {id(tensor): number for number, layer in enumerate(self.layers, 1) for tensor in layer.parameters()}
        depths = {name: depth_of.get(id(tensor), 0) for name, tensor in self.named_parameters()}
        for module, depth in self.above_layers.items():
            depths |= {name: depth for name in depths if name.startswith(f"{module}.")}
        return depths

    def layer_states(self, batch: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the input of the first layer, then the output of each layer, all in the layout of the batch.

        The last one is the result of `states`. An encoder-decoder returns the states of its decoder only.
        """
        layers = self.layers[-self.trunk.num_hidden_layers :]
        states: list[Tensor] = []
        hooks = [
            layers[0].register_forward_pre_hook(lambda _layer, inputs: states.append(first_of(inputs))),
            *(
                layer.register_forward_hook(lambda _layer, _inputs, output: states.append(first_of(output)))
                for layer in layers
            ),
        ]
        try:
            last = self.states(batch)
        finally:
            for hook in hooks:
                hook.remove()
        return [*(self.as_batch(x, batch) for x in states[:-1]), last]

    def as_batch(self, x: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Convert the states of a layer to the layout of their batch."""
        return x

    @abstractmethod
    def summary_at(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Flat index [B] of the state that summarizes each sequence, for a classifier."""

    def summary(self, batch: Mapping[str, Tensor]) -> Tensor:
        """One state [B, D] for each sequence, for a classifier."""
        return self.states(batch).flatten(0, -2)[self.summary_at(batch)]

    def scores(
        self, batch: Mapping[str, Tensor], heads: nn.ModuleDict, losses: Sequence[LossFacts]
    ) -> dict[str, Score]:
        """Score of each loss, by the kind of the loss; `heads` maps `head_name` to the head."""
        hidden, table = self(batch), self.table
        return {loss.kind: heads[loss.head_name](hidden, batch, table) for loss in losses}

    def std(self, name: str) -> float:
        """Standard deviation of the initial values of a tensor.

        `name` is the tensor's name in the model: the name in this backbone after `trunk.`, or the name in a head.
        """
        return self.trunk.init_std

    def init(self, name: str) -> Init:
        """Initialization method of a matrix or a table, by its name in the model."""
        return self.trunk.init_method

    @property
    def gain_std(self) -> float:
        """Standard deviation of the initial gains of norms, whose mean is 1."""
        return 0.0

    def memory_state(self) -> dict[str, Tensor]:
        """The memory of the training sequences, by names for a checkpoint; empty if the model has no memory."""
        return {}

    def load_memory_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Replace the memory with a result of `memory_state`."""

    def adapt_weights(self, state: Mapping[str, T], theirs: Architecture) -> dict[str, T]:
        """Rename the weights of a model with the architecture `theirs` to the names in this model."""
        return dict(state)


def no_writer(trunk: Architecture) -> BadInput:
    """Return the error for a model that does not generate text from left to right."""
    return BadInput(
        f"generate: invalid attention_mask of this {trunk.kind}: got {trunk.attention_mask!r}, expected 'causal'; "
        "for a masked language model, add --masked-decoding gibbs; otherwise use a model that predicts the next token"
    )


def first_of(values: Any) -> Tensor:
    """The first tensor among the inputs or outputs of a layer; with several streams, the content stream."""
    return values if isinstance(values, Tensor) else first_of(values[0])


def last_at(batch: Mapping[str, Tensor]) -> Tensor:
    """Flat index [B] of the last token of each sequence."""
    return batch["first_at"] + batch["lengths"].to(batch["first_at"].device) - 1
