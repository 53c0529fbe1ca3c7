"""Memory of a device, itemised: what each kind of tensor takes, and how much there is at once at most.

States are as DeepSpeed 0.19.8 keeps them with the engine's configuration (training/engines/deepspeed.py); measured
on two workers (the cases of tests/orchestration/planning).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final, Literal

from orchestration.planning.demand import Demand
from orchestration.planning.layout import Layout
from training.specs import Blocks

BUCKET: Final = 50_000_000  # elements that are reduced at once, in float32: buffers of the engine
LIVE: Final = 1_000_000_000  # elements of gathered weights at most (stage3_max_live_parameters)
LOGITS_AT_ONCE: Final = 1 << 23  # elements of logits at once (training/losses/heads/cross_entropy.py)
End = Literal["first", "last"]
"""An end of a pipeline, whose first stage has the tables and whose last has the heads; without one they are one."""
CONTEXT: Final = 1.5e9  # bytes of a GPU that CUDA, its libraries and communicators take


@dataclass(frozen=True)
class Memory:
    """Bytes of one device. The first four stay; of the rest there is what the backward pass needs, or the update."""

    weights: float
    gradients: float
    master: float
    optimiser: float
    gathered: float = 0.0  # ZeRO-3: weights of layers that are whole for a while
    buckets: float = 0.0
    activations: float = 0.0
    lent: float = 0.0  # at the last stage of a pipeline: the first one's token table, and its gradient in float32
    logits: float = 0.0  # what the heads keep: features, and a gradient of the token table in float32
    slices: float = 0.0  # of logits, before the backward pass
    backward: float = 0.0  # gradients of activations in a block
    update: float = 0.0  # what an update needs for a moment
    context: float = 0.0
    host: float = 0.0  # beside the device: offloaded states, in the memory of the host

    @property
    def states(self) -> float:
        return self.weights + self.gradients + self.master + self.optimiser

    @property
    def peak(self) -> float:
        """At most at once."""
        back = max(self.slices, self.buckets + self.backward)
        passing = self.gathered + self.activations + self.lent + self.logits + back
        return self.states + max(passing, self.update) + self.context

    def items(self) -> Iterator[tuple[str, float]]:
        """Name and bytes of each that is not nothing."""
        for field in fields(self):
            if value := getattr(self, field.name):
                yield field.name, value


def weights_of(demand: Demand, layout: Layout, stage: End = "first") -> float:
    """Weights of a device, before ZeRO: a stage's layers, a tensor group's share of each.

    With a pipeline the first stage has the tables as well, the last one the heads; of stages that have not as many
    layers as others it is one of those that have more.
    """
    weights = demand.weights
    parts = ((-(-part.copies // layout.pipeline), part) for part in weights.layers)
    layers = sum(copies * (part.split / layout.tensor + part.whole) for copies, part in parts)
    if layout.pipeline > 1 and stage == "last":
        return layers + demand.heads
    whole = weights.others - (demand.heads if layout.pipeline > 1 else 0)
    return weights.tables / layout.tensor + layers + whole


def memory(demand: Demand, layout: Layout, length: int, *, cuda: bool = True) -> Memory:
    """What a device needs for rows of `length` tokens; of a pipeline one of the stage that needs most."""
    stages: tuple[End, ...] = ("first", "last") if layout.pipeline > 1 else ("first",)
    return max((memory_at(demand, layout, length, stage, cuda=cuda) for stage in stages), key=lambda one: one.peak)


def memory_at(demand: Demand, layout: Layout, length: int, stage: End, *, cuda: bool = True) -> Memory:
    """What a device of an end of a pipeline needs."""
    weights, workers, size = weights_of(demand, layout, stage), layout.replicas, layout.bytes_per_weight
    states = demand.recipe.optim.states
    zero, owned = layout.zero, weights / workers
    master = 4 * owned if layout.mixed or zero else 0.0
    optimiser = 4 * states * owned if zero else 4 * states * weights
    if zero == 3:
        kept, gradients = size * owned, 4 * owned
        gathered = size * min(weights, LIVE)
    else:
        kept, gathered = size * weights, 0.0
        gradients = 4 * owned if zero == 2 else 4 * weights
        gradients += size * weights if zero == 1 and layout.mixed else 0.0
    update = 6 * owned if zero == 2 else 4 * weights if zero < 2 else 4 * owned
    host = 0.0
    if layout.offload:
        host, master, optimiser, update = master + optimiser + 4 * owned, 0.0, 0.0, 2 * owned
    buckets = 4.0 * BUCKET if zero else 0.0
    kept_blocks, passing = activations(demand, layout, length, stage, cuda=cuda)
    of_heads, slices = logits(demand, layout, length)
    lent = 0.0
    if layout.pipeline > 1 and stage == "first":
        of_heads = slices = 0.0
    elif layout.pipeline > 1:
        lent = (size + 4) * demand.weights.tables / layout.tensor
    return Memory(
        weights=kept,
        gradients=gradients,
        master=master,
        optimiser=optimiser,
        gathered=gathered,
        buckets=buckets,
        activations=kept_blocks,
        lent=lent,
        logits=of_heads,
        slices=slices,
        backward=passing,
        update=update,
        context=CONTEXT if cuda else 0.0,
        host=host,
    )


def activations(
    demand: Demand, layout: Layout, length: int, stage: End = "first", *, cuda: bool
) -> tuple[float, float]:
    """Bytes that a forward pass keeps, and those that the backward pass of a block needs beside them.

    With a pipeline its first stage keeps those of as many micro-batches as there are stages (arXiv:2104.04473, 2.2),
    the last one those of one.
    """
    at_once = layout.pipeline if stage == "first" else 1  # micro-batches
    stacks = demand.blocks(layout.rows / layout.sequence, length)
    size = layout.bytes_per_weight
    total, passing = 0.0, 0.0
    for stack in stacks:
        if not stack.backward:
            continue
        block = kept_by_block(stack, layout, cuda=cuda)
        entry = stack.tokens * stack.width * size
        each = entry if layout.checkpointing == "full" else block
        total += -(-stack.number // layout.pipeline) * each * at_once
        gradients = stack.tokens * (2 * stack.inner / layout.tensor + 2 * stack.width) * size
        passing = max(passing, gradients + (block if layout.checkpointing == "full" else 0.0))
    mask = size if not cuda else 1
    tokens = sum(stack.tokens for stack in stacks)
    dropped = mask if any(stack.dropout for stack in stacks) else 0
    embedded = tokens * demand.recipe.trunk.table_width * (size + dropped)
    return total + embedded * at_once, passing


def kept_by_block(stack: Blocks, layout: Layout, *, cuda: bool) -> float:
    """Bytes of activations that one block keeps for its backward pass (measured by torch's saved tensors).

    On a CPU a dropped-out tensor keeps a mask of its own precision, and dropout of attention weights three matrices of
    scores; on a GPU a mask is a byte, and the kernels keep no scores.
    """
    size, sublayers = layout.bytes_per_weight, stack.attentions + 1
    mask = 1 if cuda else size
    of_width = stack.tokens * stack.width * (stack.kept_by_norm * size + (mask if stack.dropout else 0)) * sublayers
    heads = 4 * stack.tokens + (2 * stack.tokens + 2 * stack.source_tokens if stack.source_tokens else 0)
    inside = stack.kept_inside * size + (mask + size if stack.inner_dropout else 0)
    split = heads * stack.heads_width * size + stack.tokens * stack.inner * inside
    split += 4 * stack.tokens * stack.heads * stack.attentions  # of each query the logarithm of its sum
    if layout.checkpointing == "none":
        own, other = stack.scores, 0
        if stack.attention_dropout and (not cuda or stack.scores):
            own, other = max(own, 3), 3
        split += stack.heads * (own * stack.pairs + other * stack.source_pairs) * size
    return of_width + split / layout.tensor


def logits(demand: Demand, layout: Layout, length: int) -> tuple[float, float]:
    """Bytes that the heads keep: of each target its features and their gradient, and where tokens are named a gradient
    of the table in float32; and those of the slice of logits that is there at once."""
    trunk, size = demand.recipe.trunk, layout.bytes_per_weight
    work, total, slices = demand.work(layout.rows / layout.sequence, length), 0.0, 0.0
    for loss in demand.recipe.objective.losses:
        targets = loss.targets(work)
        total += 4 * targets * max(trunk.width, trunk.table_width) * size
        if loss.names_tokens:
            answers = trunk.answers(demand.vocab_size) / layout.tensor
            total += 4 * answers * trunk.table_width
            slices = max(slices, 3 * 4 * min(targets * answers, max(LOGITS_AT_ONCE, answers)))
    return total, slices
