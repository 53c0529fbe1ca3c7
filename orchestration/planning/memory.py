"""Memory of a device, itemised: what each kind of tensor takes, and how much there is at once at most.

States are as DeepSpeed 0.19.8 keeps them with the engine's configuration (training/engines/deepspeed.py); measured
on two workers (the cases of tests/orchestration/planning).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final, Literal

from orchestration.planning.layout import ParallelLayout
from orchestration.planning.workload import Workload
from training.specs import LOGITS_AT_ONCE, BlockSpec

AT_ONCE: Final = (
    500_000_000  # elements that are summed at once where there are no buckets (deepspeed/runtime/engine.py)
)
End = Literal["first", "last"]
"""An end of a pipeline, whose first stage has the tables and whose last has the heads; without one they are one."""
CONTEXT: Final = 1.5e9  # bytes of a GPU that CUDA, its libraries and communicators take


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of one device. The first five stay; of the rest there is what a pass needs, or the update."""

    weights: float
    gradients: float
    master: float
    optimiser: float
    reserved: float = 0.0  # buffers that are always there: ZeRO-3's bucket, and what offloading copies through
    gathered: float = 0.0  # ZeRO-3: weights of layers that are whole for a while
    buckets: float = 0.0  # of gradients, in the backward pass
    activations: float = 0.0
    lent: float = 0.0  # at the last stage of a pipeline: the first one's token table, and its gradient in float32
    logits: float = 0.0  # what the heads keep: features, and a gradient of the token table in float32
    slices: float = 0.0  # of logits, before the backward pass
    handed: float = 0.0  # copies of the table's gradient, as the heads hand it on: times the loss's, and in 16 bit
    backward: float = 0.0  # gradients of activations in a block
    reducing: float = 0.0  # copies of a bucket while workers sum it, less the activations that are gone by then
    update: float = 0.0  # what an update needs for a moment
    context: float = 0.0
    host: float = 0.0  # beside the device: offloaded states, in the memory of the host
    disk: float = 0.0  # and on its local disk

    @property
    def states(self) -> float:
        return self.weights + self.gradients + self.master + self.optimiser

    @property
    def peak(self) -> float:
        """At most at once."""
        back = max(self.slices, self.handed, self.buckets + self.backward + self.reducing)
        passing = self.gathered + self.activations + self.lent + self.logits + back
        return self.states + self.reserved + max(passing, self.update) + self.context

    def items(self) -> Iterator[tuple[str, float]]:
        """Name and bytes of each that is not nothing."""
        for field in fields(self):
            if value := getattr(self, field.name):
                yield field.name, value


def weights_of(demand: Workload, layout: ParallelLayout, stage: End = "first") -> float:
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


def device_memory(demand: Workload, layout: ParallelLayout, length: int, *, cuda: bool = True) -> DeviceMemory:
    """What a device needs for rows of `length` tokens; of a pipeline one of the stage that needs most."""
    stages: tuple[End, ...] = ("first", "last") if layout.pipeline > 1 else ("first",)
    return max((memory_at(demand, layout, length, stage, cuda=cuda) for stage in stages), key=lambda one: one.peak)


def memory_at(demand: Workload, layout: ParallelLayout, length: int, stage: End, *, cuda: bool = True) -> DeviceMemory:
    """What a device of an end of a pipeline needs. A CPU is its own host: there nothing lies beside it."""
    weights, size, zero = weights_of(demand, layout, stage), layout.bytes_per_weight, layout.zero
    owned = weights / layout.replicas if zero else weights
    kept_blocks, passing = activations(demand, layout, length, stage, cuda=cuda)
    of_heads, slices, handed = logits(demand, layout, length)
    lent = 0.0
    if layout.pipeline > 1 and stage == "first":
        of_heads = slices = handed = 0.0
    elif layout.pipeline > 1:
        lent = (size + 4) * demand.weights.tables / layout.tensor
    bucket, copies = _buckets(layout, weights)
    done = min(1.0, layout.bucket / weights)  # of the backward pass, when the first bucket is summed
    # the table's gradient is the last of all; where no bucket holds it, it is copied by itself
    of_table = table_copies(demand, layout) if stage == "first" or layout.pipeline == 1 else 0.0
    whole = persistent(demand, layout, length) if zero == 3 else 0.0
    ahead = min(weights - whole, layout.prefetch)  # a buffer of what was gathered together, beside the layers' own
    states = {
        "weights": size * (owned + whole if zero == 3 else weights),
        "gradients": _gradients(demand, layout, weights),
        "master": 4 * owned if layout.mixed or zero else 0.0,
        "optimiser": 4 * moments(demand, layout, length, stage),
    }
    aside = _offloaded(layout, states, owned, demand.weights.tables / layout.tensor)
    on_disk = sum(aside.get(name, 0.0) for name in _disk(layout))
    if cuda:
        states = {name: value - aside.get(name, 0.0) for name, value in states.items()}
    else:
        states = {name: value - aside.get(name, 0.0) * (name in _disk(layout)) for name, value in states.items()}
        states["gradients"] += aside["copies"]
    return DeviceMemory(
        **states,
        reserved=(bucket if zero == 3 else 0.0) + aside["buffers"] + (0.0 if cuda else aside["host_buffers"]),
        gathered=size * (min(weights - whole, layout.live) + ahead) if zero == 3 else 0.0,
        buckets=bucket if zero < 3 else 0.0,
        activations=kept_blocks,
        lent=lent,
        logits=of_heads,
        slices=slices,
        handed=handed,
        backward=passing,
        reducing=max(0.0, copies - done * (kept_blocks + of_heads), of_table - kept_blocks - of_heads - passing),
        update=_update(layout, weights, owned),
        context=CONTEXT if cuda else 0.0,
        host=sum(aside.values()) - aside["buffers"] - on_disk if cuda else 0.0,
        disk=on_disk,
    )


def moments(demand: Workload, layout: ParallelLayout, length: int, stage: End = "first") -> float:
    """Numbers that the optimiser of a worker keeps; those of rows and columns are whole on each (arXiv:1804.04235).

    Linears of heads and tables of positions count as if they were never factored: a little too much.
    """
    optim, trunk = demand.recipe.optimizer, demand.recipe.model
    own, of_linears, lines = weights_of(demand, layout, stage), 0.0, 0.0
    has_table = stage == "first" or layout.pipeline == 1
    table = demand.weights.tables / layout.tensor if has_table else 0.0
    for share, (rows, columns) in _linears(demand, layout, length):
        size = share * rows * columns / layout.tensor
        if min(rows, columns) >= optim.factored_from:
            of_linears, lines = of_linears + size, lines + share * (rows + columns)
    if optim.factored_from and trunk.table_width >= optim.factored_from:
        own, lines = own - table, lines + has_table * (demand.vocab_size + trunk.table_width)
    kept = optim.states * of_linears + optim.other_states * (own - of_linears)
    return kept / (layout.replicas if layout.zero else 1) + (lines if optim.factored_from else 0.0)


def _linears(demand: Workload, layout: ParallelLayout, length: int) -> Iterator[tuple[float, tuple[int, int]]]:
    """Rows and columns of each linear of the layers, whole, and how many of it a stage of a pipeline has: fewer than
    are passed through where layers share them."""
    parts = demand.weights.layers
    copies = sum(part.copies * part.each for part in parts) / max(1, sum(part.number * part.each for part in parts))
    for stack in demand.blocks(layout.rows, length):
        for shape in stack.linears:
            yield stack.number * copies / layout.pipeline, shape


def _disk(layout: ParallelLayout) -> tuple[str, ...]:
    """States that lie on a local disk."""
    of_optimiser = ("master", "optimiser") if layout.offload and layout.optimiser_on_disk else ()
    return of_optimiser + (("weights",) if layout.offload_parameters and layout.parameters_on_disk else ())


def _gradients(demand: Workload, layout: ParallelLayout, weights: float) -> float:
    """Bytes of gradients between two micro-batches, of the worker that has most.

    In float32 stage 2 keeps those of a tensor whole on each worker that has a part of it: of the token table, which is
    the first of all, and of every tensor where the optimiser has a group for each. Others that are cut count nothing.
    """
    if layout.zero >= 2:
        owned = weights / layout.replicas
        if layout.zero == 2 and not layout.mixed:
            table = demand.weights.tables / layout.tensor
            held = weights if demand.recipe.optimizer.is_one_by_one else owned * (table // owned + 1)
            owned = min(weights, held)
        return 4 * owned
    return 4 * weights + (layout.bytes_per_weight * weights if layout.sums_in_place else 0.0)


def _buckets(layout: ParallelLayout, weights: float) -> tuple[float, float]:
    """Bytes of the buffers that gradients are collected in, and of the copies that are made of one to sum it.

    Stage 1 collects float32, stage 2 what the weights are in, stage 3 what is summed. Stages 1 and 2 flatten what is in
    a bucket, and cast it; stage 3 casts it, and puts the workers' pieces one behind the other.
    """
    if layout.zero == 0 or layout.sums_in_place:
        return 0.0, 0.0
    size, summed = layout.bytes_per_weight, layout.reduce_bytes
    of_bucket = {1: 4, 2: size, 3: summed}[layout.zero]
    cast = summed if summed != (of_bucket if layout.zero < 3 else size) else 0
    # stage 2 in float32 also copies its own part of each micro-batch, which is then added to those before
    own = size * weights / layout.replicas if layout.zero == 2 and not layout.mixed else 0.0
    return layout.bucket * of_bucket * (1.0 + layout.overlap) + own, min(weights, layout.bucket) * (of_bucket + cast)


def table_copies(demand: Workload, layout: ParallelLayout) -> float:
    """Bytes of the token table's gradient at the end of a backward pass, where it is longer than a bucket: from both
    sides of the net, and cast and put in the order of the workers to be summed."""
    table = demand.weights.tables / layout.tensor
    if layout.zero < 2 or table <= layout.bucket:
        return 0.0
    size, summed = layout.bytes_per_weight, layout.reduce_bytes
    cast = summed if summed != size else 0
    return table * (2 * size + cast + (summed if layout.zero == 3 and layout.replicas > 1 else 0))


def _update(layout: ParallelLayout, weights: float, owned: float) -> float:
    """Bytes that an update takes for a moment: gradients flattened to be summed, or in one piece, and Adam's terms."""
    if layout.zero == 0 or layout.sums_in_place:
        return 4 * min(weights, AT_ONCE)
    if layout.offload:
        return 0.0
    return {1: 4 * weights, 2: 6 * owned, 3: 4 * owned}[layout.zero]


def _offloaded(layout: ParallelLayout, states: dict[str, float], owned: float, largest: float) -> dict[str, float]:
    """Bytes in the host's memory, by what they are of the device's states, or are beside them: `copies` of gradients in
    float32, and `host_buffers`. `buffers` are the device's own.

    Stages 1 and 2 send gradients through a buffer as long as the largest tensor, and weights come back through another
    one; gradients are summed on the device. Stage 3 has its gradients on the host.
    """
    aside = dict.fromkeys(("copies", "host_buffers", "buffers"), 0.0)
    if layout.offload:
        aside |= {"master": states["master"], "optimiser": states["optimiser"], "copies": 4 * owned}
        if layout.zero == 3:
            aside["gradients"] = states["gradients"]
        else:
            size = layout.bytes_per_weight
            aside |= {"buffers": size * largest, "host_buffers": size * (largest + owned)}
    if layout.offload_parameters:
        aside["weights"] = layout.bytes_per_weight * owned
    return aside


def persistent(demand: Workload, layout: ParallelLayout, length: int) -> float:
    """Weights in tensors that stay whole on ZeRO-3: biases and norms, and linears of small nets.

    Of the layers alone, by the sizes of a block's linears; what is no linear is in tensors of a width.
    """
    layers = demand.weights.layers
    all_blocks = sum(part.number * (part.split / layout.tensor + part.whole) for part in layers)
    if not all_blocks:
        return 0.0
    linears, small = 0.0, 0.0
    for stack in demand.blocks(layout.rows, length):
        heads, inner = stack.heads_width / layout.tensor, stack.inner / layout.tensor
        sizes = [3 * stack.width * heads, stack.width * heads] * stack.attentions + [stack.width * inner] * 2
        linears += stack.number * sum(sizes)
        small += stack.number * sum(size for size in sizes if size <= layout.persistent)
    if layout.persistent >= demand.recipe.model.hidden_size:
        small += max(0.0, all_blocks - linears)
    own = sum(part.copies * (part.split / layout.tensor + part.whole) for part in layers)
    return small / all_blocks * own / layout.pipeline


def activations(
    demand: Workload, layout: ParallelLayout, length: int, stage: End = "first", *, cuda: bool
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
    embedded = tokens * demand.recipe.model.table_width * (size + dropped)
    return total + embedded * at_once, passing


def kept_by_block(stack: BlockSpec, layout: ParallelLayout, *, cuda: bool) -> float:
    """Bytes of activations that one block keeps for its backward pass (measured by torch's saved tensors).

    On a CPU a dropped-out tensor keeps a mask of its own precision, and dropout of attention weights three matrices of
    scores; on a GPU a mask is a byte, and the kernels keep no scores.
    """
    size, sublayers = layout.bytes_per_weight, stack.attentions + 1
    mask = 1 if cuda else size
    of_width = stack.tokens * stack.width * (stack.kept_by_norm * size + (mask if stack.dropout else 0)) * sublayers
    # without a kernel for dropout of attention weights a CPU computes attention in float32
    core = 4 if stack.attention_dropout and not cuda else size
    read = 3 * stack.tokens + (stack.tokens + 2 * stack.source_tokens if stack.source_tokens else 0)
    inside = stack.kept_inside * size + (mask + size if stack.inner_dropout else 0)
    split = (
        read * core + stack.tokens * stack.attentions * size
    ) * stack.heads_width + stack.tokens * stack.inner * inside
    split += stack.copied * core * stack.tokens * stack.heads_width
    split += 4 * stack.tokens * stack.heads * stack.attentions  # of each query the logarithm of its sum
    if layout.checkpointing == "none":
        own, other = stack.scores, 0
        if stack.attention_dropout and (not cuda or stack.scores):
            own, other = max(own, 3), 3
        split += stack.heads * (own * stack.pairs + other * stack.source_pairs) * core
    return of_width + split / layout.tensor


def logits(demand: Workload, layout: ParallelLayout, length: int) -> tuple[float, float, float]:
    """Bytes that the heads keep: of each target its features and their gradient, and where tokens are named a gradient
    of the table in float32; those of the logits that are there at once, a slice or all; and copies of the gradient of
    the table on its way back: times the gradient of the loss, and in the precision of the table."""
    trunk, size = demand.recipe.model, layout.bytes_per_weight
    work, total, slices, handed = demand.work(layout.rows / layout.sequence, length), 0.0, 0.0, 0.0
    for loss in demand.recipe.losses:
        targets = loss.targets(work)
        total += (
            4 * targets * (max(trunk.hidden_size, trunk.table_width) if loss.names_tokens else trunk.hidden_size) * size
        )
        if loss.names_tokens:
            answers = trunk.answers(demand.vocab_size) / layout.tensor
            if loss.kept_logits:
                slices = max(slices, loss.kept_logits * 4 * targets * answers)
                continue
            total += 4 * answers * trunk.table_width
            handed = max(handed, (4 if size == 4 else 4 + size) * answers * trunk.table_width)
            at_once = max(LOGITS_AT_ONCE, answers)
            # logits and their softmax in float32, in 16 bit the gradient too; while the next slice is made, more
            times = (3 if size == 4 else 4) if targets * answers > at_once else 2 if size == 4 else 2.5
            slices = max(slices, times * 4 * min(targets * answers, at_once))
    return total, slices, handed
