"""Memory of a device by item: the bytes of each kind of tensor, and the peak.

States of several workers are stored as DeepSpeed 0.19.8 does with the engine's configuration
(training/engines/deepspeed.py), those of a lone worker in flat tensors (training/engines/flat_parameters.py). Both were
measured on CPUs (the cases of tests/orchestration/planning).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final, Literal

from orchestration.planning.layout import ParallelLayout
from orchestration.planning.workload import Workload
from training.specs import LOGIT_BYTES, TABLE_ROWS, BlockSpec, count_logits_at_once

# elements that are reduced at once if there are no buckets (deepspeed/runtime/engine.py)
AT_ONCE: Final = 500_000_000
End = Literal["first", "last"]
"""End of a pipeline. The first stage has the embedding tables and the last one has the heads. A model without a
pipeline is one stage with both."""
NOISE: Final = 2  # bytes of dropout's random numbers per element on a CPU (training/architectures/dropout.py)
CONTEXT: Final = 1.5e9  # bytes of a GPU that CUDA, its libraries and communicators take
# elements of the tensors with equal shapes that LAMB, Adafactor and Muon update together (training/optimizers/steps)
UPDATED_TOGETHER: Final = 1 << 26
UPDATED_TOGETHER_ON_CPU: Final = 1 << 20


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of one device. The first five items are permanent. The others are needed during a pass or during the
    update."""

    weights: float
    gradients: float
    master: float
    optimizer: float
    # the bucket of ZeRO-3, the buffers that offloading copies through, and the 16-bit gradients that a lone worker adds
    permanent_buffers: float = 0.0
    gathered: float = 0.0  # ZeRO-3: weights of the layers that are gathered at the moment
    buckets: float = 0.0  # buckets of gradients, in the backward pass
    activations: float = 0.0
    # last stage of a pipeline: the token table of the first stage, and its gradient in float32
    first_stage_table: float = 0.0
    head_inputs: float = 0.0  # stored by the heads: features, and a gradient of the token table in float32
    logit_slices: float = 0.0  # slices of logits, before the backward pass
    # copies of the token table's gradient: one scaled by the loss gradient, one in 16 bits
    table_gradients: float = 0.0
    activation_gradients: float = 0.0  # gradients of activations in a block
    reduction_copies: float = 0.0  # copies of a bucket during reduction, minus the activations that are already freed
    # a lone worker: gradients of a micro-batch at the end of its backward pass, minus the same activations
    new_gradients: float = 0.0
    update_copies: float = 0.0  # temporary memory of an update
    cuda_context: float = 0.0
    host: float = 0.0  # offloaded states in host memory, in addition to the device memory
    disk: float = 0.0  # offloaded states on a local disk

    @property
    def states(self) -> float:
        return self.weights + self.gradients + self.master + self.optimizer

    @property
    def peak(self) -> float:
        """Maximum bytes at any time."""
        copies = self.reduction_copies + self.new_gradients  # several workers have the first, a lone one the second
        back = max(self.logit_slices, self.table_gradients, self.buckets + self.activation_gradients + copies)
        passing = self.gathered + self.activations + self.first_stage_table + self.head_inputs + back
        return self.states + self.permanent_buffers + max(passing, self.update_copies) + self.cuda_context

    def items(self) -> Iterator[tuple[str, float]]:
        """Name and bytes of each item that is not zero."""
        for field in fields(self):
            if value := getattr(self, field.name):
                yield field.name, value


def weights_of(demand: Workload, layout: ParallelLayout, stage: End = "first") -> float:
    """Number of weights on a device before ZeRO: the layers of its stage, divided over its tensor group.

    In a pipeline the first stage has the embedding tables too, and the last one has the heads. If stages differ in
    their number of layers, this is a stage with the larger number.
    """
    weights = demand.weights
    parts = ((-(-part.copies // layout.pipeline), part) for part in weights.layers)
    layers = sum(copies * (part.split / layout.tensor + part.whole) for copies, part in parts)
    tables = tables_of(demand, layout, stage) * demand.token_table / layout.tensor
    if layout.pipeline > 1 and stage == "last":
        return tables + layers + demand.heads
    whole = weights.others - (demand.heads if layout.pipeline > 1 else 0)
    return tables + layers + whole


def tables_of(demand: Workload, layout: ParallelLayout, stage: End) -> int:
    """Number of tables with a row per token on a device: the token table, and an untied output table."""
    alone = layout.pipeline == 1
    return demand.tables_at(first=alone or stage == "first", last=alone or stage == "last")


def device_memory(
    demand: Workload, layout: ParallelLayout, length: int, *, cuda: bool = True, gpu_memory: float = 0.0
) -> DeviceMemory:
    """Memory of a device for sequences of `length` tokens; in a pipeline, of the stage with the highest peak.

    `gpu_memory` is the memory of a GPU in bytes, on which the size of a slice of logits depends; 0: slices as on a CPU.
    """
    stages: tuple[End, ...] = ("first", "last") if layout.pipeline > 1 else ("first",)
    found = (memory_at(demand, layout, length, stage, cuda=cuda, gpu_memory=gpu_memory) for stage in stages)
    return max(found, key=lambda one: one.peak)


def memory_at(
    demand: Workload, layout: ParallelLayout, length: int, stage: End, *, cuda: bool = True, gpu_memory: float = 0.0
) -> DeviceMemory:
    """Memory of a device at one end of a pipeline. A CPU is its own host, so that offloaded states stay in its
    memory."""
    weights, size, zero = weights_of(demand, layout, stage), layout.bytes_per_weight, layout.zero
    owned = weights / layout.replicas if zero else weights
    kept_blocks, passing = activations(demand, layout, length, stage, cuda=cuda)
    of_heads, slices, table_gradients = logits(demand, layout, length, gpu_memory=gpu_memory)
    lent = 0.0
    if layout.pipeline > 1 and stage == "first":
        of_heads = slices = table_gradients = 0.0
    elif layout.pipeline > 1:
        lent = (size + 4) * demand.borrowed_table / layout.tensor
    if layout.is_alone:
        return DeviceMemory(
            **_states_of_lone_worker(demand, layout, length),
            activations=kept_blocks,
            head_inputs=of_heads,
            logit_slices=slices,
            table_gradients=table_gradients,
            activation_gradients=passing,
            new_gradients=max(0.0, _new_gradients(demand, layout) - kept_blocks - of_heads - passing),
            update_copies=_update_of_lone_worker(demand, weights, cuda=cuda),
            cuda_context=CONTEXT if cuda else 0.0,
        )
    bucket, copies = _buckets(layout, weights)
    # fraction of the backward pass that is done when the first bucket is reduced
    done = min(1.0, layout.bucket / weights)
    # The gradient of the table is the last one. If no bucket is large enough for this gradient, it is copied
    # separately.
    of_table = table_copies(demand, layout) if stage == "first" or layout.pipeline == 1 else 0.0
    whole = persistent(demand, layout, length) if zero == 3 else 0.0
    # buffer of weights that are gathered together, in addition to the buffers of the layers
    ahead = min(weights - whole, layout.prefetch)
    states = {
        "weights": size * (owned + whole if zero == 3 else weights),
        "gradients": _gradients(demand, layout, weights),
        "master": 4 * owned if layout.mixed or zero else 0.0,
        "optimizer": 4 * moments(demand, layout, length, stage),
    }
    offloaded = _count_offloaded(layout, states, owned, demand.token_table / layout.tensor)
    on_disk = sum(offloaded.get(name, 0.0) for name in _disk(layout))
    if cuda:
        states = {name: value - offloaded.get(name, 0.0) for name, value in states.items()}
    else:
        states = {name: value - offloaded.get(name, 0.0) * (name in _disk(layout)) for name, value in states.items()}
        states["gradients"] += offloaded["copies"]
    return DeviceMemory(
        **states,
        permanent_buffers=(bucket if zero == 3 else 0.0)
        + offloaded["buffers"]
        + (0.0 if cuda else offloaded["host_buffers"]),
        gathered=size * (min(weights - whole, layout.live) + ahead) if zero == 3 else 0.0,
        buckets=bucket if zero < 3 else 0.0,
        activations=kept_blocks,
        first_stage_table=lent,
        head_inputs=of_heads,
        logit_slices=slices,
        table_gradients=table_gradients,
        activation_gradients=passing,
        reduction_copies=max(
            0.0, copies - done * (kept_blocks + of_heads), of_table - kept_blocks - of_heads - passing
        ),
        update_copies=_update(layout, weights, owned),
        cuda_context=CONTEXT if cuda else 0.0,
        host=sum(offloaded.values()) - offloaded["buffers"] - on_disk if cuda else 0.0,
        disk=on_disk,
    )


def _states_of_lone_worker(demand: Workload, layout: ParallelLayout, length: int) -> dict[str, float]:
    """Bytes that a process without DeepSpeed stores between two steps.

    In float32, its weights are the flat tensors. In 16 bits, the flat tensors are master weights, and a flat 16-bit
    tensor takes the gradients of each micro-batch of a step except the first.
    """
    weights, size = weights_of(demand, layout), layout.bytes_per_weight
    return {
        "weights": size * weights,
        "gradients": 4 * weights,
        "master": 4 * weights if layout.mixed else 0.0,
        "optimizer": 4 * moments(demand, layout, length),
        "permanent_buffers": size * weights if layout.mixed and _accumulates(demand, layout, length) else 0.0,
    }


def _accumulates(demand: Workload, layout: ParallelLayout, length: int) -> bool:
    """Whether a step with sequences of `length` tokens has more than one micro-batch; True if no phase has them."""
    batches = [phase.global_batch_size for phase in demand.recipe.phases if phase.seq_length == length]
    return not batches or max(batches) > layout.rows


def _new_gradients(demand: Workload, layout: ParallelLayout) -> float:
    """Bytes of new gradients at the end of a backward pass: all 16-bit ones; in float32, they are added as they come.

    The last one is that of the token table, which is a separate tensor until it is added to that of the head.
    """
    all_weights = weights_of(demand, layout) if layout.mixed else 0.0
    return layout.bytes_per_weight * (all_weights + demand.token_table)


def _update_of_lone_worker(demand: Workload, weights: float, *, cuda: bool) -> float:
    """Bytes of temporary tensors in an update of flat tensors.

    AdamW and Lion need up to one tensor as long as the longest flat tensor on a GPU, and two on a CPU. The longest has
    the matrices of the layers, or the tables. Other optimizers update some tensors together: those of equal shapes, or
    the token table alone. LAMB and Muon have two copies of these, and the updates of all weights. Adafactor has four
    copies, or three of a single tensor.
    """
    together = min(weights, UPDATED_TOGETHER if cuda else UPDATED_TOGETHER_ON_CPU)
    if demand.recipe.optimizer.factored_from:
        return 4 * max(4 * together, 3 * demand.token_table)
    if demand.recipe.optimizer.is_one_by_one:
        return 4 * (weights + 2 * max(together, demand.token_table))
    layers = sum(part.copies * (part.split + part.whole) for part in demand.weights.layers)
    return (4 if cuda else 8) * max(layers, weights - layers)


def moments(demand: Workload, layout: ParallelLayout, length: int, stage: End = "first") -> float:
    """Number of values that the optimizer of a worker stores. Row and column statistics are complete on each worker
    (arXiv:1804.04235).

    Linear layers of heads and position tables are counted as not factored, which slightly overestimates the number.
    """
    optim, trunk = demand.recipe.optimizer, demand.recipe.model
    weights, of_linears, lines = weights_of(demand, layout, stage), 0.0, 0.0
    number = tables_of(demand, layout, stage)
    table = number * demand.token_table / layout.tensor
    for share, (rows, columns) in _linears(demand, layout, length):
        size = share * rows * columns / layout.tensor
        if min(rows, columns) >= optim.factored_from:
            of_linears, lines = of_linears + size, lines + share * (rows + columns)
    if optim.factored_from and trunk.table_width >= optim.factored_from:
        weights, lines = weights - table, lines + number * (demand.vocab_size + trunk.table_width)
    values = optim.states * of_linears + optim.other_states * (weights - of_linears)
    return values / (layout.replicas if layout.zero else 1) + (lines if optim.factored_from else 0.0)


def _linears(demand: Workload, layout: ParallelLayout, length: int) -> Iterator[tuple[float, tuple[int, int]]]:
    """The complete shape (rows, columns) of each linear layer, and the number of its copies on a pipeline stage.

    This number is smaller than the number of passes through the layer if layers share weights.
    """
    parts = demand.weights.layers
    copies = sum(part.copies * part.each for part in parts) / max(1, sum(part.number * part.each for part in parts))
    for stack in demand.blocks(layout.rows, length):
        for shape in stack.linears:
            yield stack.number * copies / layout.pipeline, shape


def _disk(layout: ParallelLayout) -> tuple[str, ...]:
    """Names of the states that are on a local disk."""
    of_optimizer = ("master", "optimizer") if layout.offload and layout.optimizer_on_disk else ()
    return of_optimizer + (("weights",) if layout.offload_parameters and layout.parameters_on_disk else ())


def _gradients(demand: Workload, layout: ParallelLayout, weights: float) -> float:
    """Bytes of gradients between two micro-batches, on the worker that stores the most.

    With float32 weights, stage 2 keeps the complete gradient of a tensor on each worker that has a part of it. This
    holds for the token table, which is the first tensor, and for all tensors if the optimizer has one group per tensor.
    Other tensors that are divided between workers are not counted.
    """
    if layout.zero >= 2:
        owned = weights / layout.replicas
        if layout.zero == 2 and not layout.mixed:
            table = demand.token_table / layout.tensor
            stored = weights if demand.recipe.optimizer.is_one_by_one else owned * (table // owned + 1)
            owned = min(weights, stored)
        return 4 * owned
    return 4 * weights + (layout.bytes_per_weight * weights if layout.sums_in_place else 0.0)


def _buckets(layout: ParallelLayout, weights: float) -> tuple[float, float]:
    """Bytes of the gradient buffers, and of the copies of one buffer during its reduction.

    The buffers of stage 1 have float32, those of stage 2 the type of the weights, those of stage 3 the type of the
    reduction. Stages 1 and 2 flatten and cast the content of a bucket. Stage 3 casts the content and concatenates the
    parts of the workers.
    """
    if layout.zero == 0 or layout.sums_in_place:
        return 0.0, 0.0
    size, summed = layout.bytes_per_weight, layout.reduce_bytes
    of_bucket = {1: 4, 2: size, 3: summed}[layout.zero]
    cast = summed if summed != (of_bucket if layout.zero < 3 else size) else 0
    # Stage 2 with float32 weights also copies the worker's part of each gradient, to add it to earlier micro-batches.
    own_part = size * weights / layout.replicas if layout.zero == 2 and not layout.mixed else 0.0
    return layout.bucket * of_bucket * (1.0 + layout.overlap) + own_part, min(weights, layout.bucket) * (
        of_bucket + cast
    )


def table_copies(demand: Workload, layout: ParallelLayout) -> float:
    """Bytes of the token table's gradient at the end of a backward pass, if it is longer than a bucket.

    Both ends of the model contribute to this gradient. It is cast, and ordered by worker for the reduction.
    """
    table = demand.token_table / layout.tensor
    if layout.zero < 2 or table <= layout.bucket:
        return 0.0
    size, summed = layout.bytes_per_weight, layout.reduce_bytes
    cast = summed if summed != size else 0
    return table * (2 * size + cast + (summed if layout.zero == 3 and layout.replicas > 1 else 0))


def _update(layout: ParallelLayout, weights: float, owned: float) -> float:
    """Bytes of temporary memory in an update: gradients, flattened for a reduction or as a whole, and the terms of
    Adam."""
    if layout.zero == 0 or layout.sums_in_place:
        return 4 * min(weights, AT_ONCE)
    if layout.offload:
        return 0.0
    return {1: 4 * weights, 2: 6 * owned, 3: 4 * owned}[layout.zero]


def _count_offloaded(
    layout: ParallelLayout, states: dict[str, float], owned: float, largest: float
) -> dict[str, float]:
    """Bytes in host memory by item: states of the device, and also `copies` of gradients in float32 and `host_buffers`.

    `buffers` are on the device. Stages 1 and 2 reduce gradients on the device, and send them through a buffer as long
    as the largest tensor. Updated weights come back through another buffer. Stage 3 has its gradients on the host.
    """
    offloaded = dict.fromkeys(("copies", "host_buffers", "buffers"), 0.0)
    if layout.offload:
        offloaded |= {"master": states["master"], "optimizer": states["optimizer"], "copies": 4 * owned}
        if layout.zero == 3:
            offloaded["gradients"] = states["gradients"]
        else:
            size = layout.bytes_per_weight
            offloaded |= {"buffers": size * largest, "host_buffers": size * (largest + owned)}
    if layout.offload_parameters:
        offloaded["weights"] = layout.bytes_per_weight * owned
    return offloaded


def persistent(demand: Workload, layout: ParallelLayout, length: int) -> float:
    """Number of weights in tensors that ZeRO-3 does not partition: biases and norms, and linear layers of small models.

    Only layers are counted, by the sizes of the linear layers of a block. Their other tensors have `hidden_size`
    elements.
    """
    layers = demand.weights.layers
    all_blocks = sum(part.number * (part.split / layout.tensor + part.whole) for part in layers)
    if not all_blocks:
        return 0.0
    linears, small = 0.0, 0.0
    for stack in demand.blocks(layout.rows, length):
        sizes = [size / layout.tensor for size in stack.layer_sizes]
        linears += stack.number * sum(sizes)
        small += stack.number * sum(size for size in sizes if size <= layout.persistent)
    if layout.persistent >= demand.recipe.model.hidden_size:
        small += max(0.0, all_blocks - linears)
    stage_weights = sum(part.copies * (part.split / layout.tensor + part.whole) for part in layers)
    return small / all_blocks * stage_weights / layout.pipeline


def activations(
    demand: Workload, layout: ParallelLayout, length: int, stage: End = "first", *, cuda: bool
) -> tuple[float, float]:
    """Bytes that a forward pass stores, and bytes that the backward pass of a block needs in addition.

    In a pipeline the first stage stores the activations of as many micro-batches as there are stages (arXiv:2104.04473,
    2.2). The last stage stores the activations of one micro-batch.
    """
    at_once = layout.pipeline if stage == "first" else 1  # micro-batches
    stacks = demand.blocks(layout.rows / layout.sequence, length)
    size = layout.bytes_per_weight
    total, passing = 0.0, 0.0
    for stack in stacks:
        if not stack.backward:
            continue
        block = count_kept_by_block(stack, layout, cuda=cuda)
        entry = stack.tokens * stack.width * size
        each = entry if layout.checkpointing == "full" else block
        total += -(-stack.number // layout.pipeline) * each * at_once
        inner = stack.feed_forward.passing * stack.inner / layout.tensor
        gradients = stack.tokens * (inner + 2 * stack.width) * size
        passing = max(passing, gradients + (block if layout.checkpointing == "full" else 0.0))
    mask = 1 if cuda else NOISE
    tokens = sum(stack.tokens for stack in stacks)
    dropped = mask if any(stack.dropout for stack in stacks) else 0
    embedded = tokens * demand.recipe.model.table_width * (size + dropped)
    return total + embedded * at_once, passing


def count_kept_by_block(stack: BlockSpec, layout: ParallelLayout, *, cuda: bool) -> float:
    """Bytes of activations that one block stores for its backward pass (measured by the saved tensors of torch).

    On a CPU, a tensor with dropout stores two bytes of noise per element, and attention dropout stores one score matrix
    in float32, otherwise three. On a GPU a mask element has one byte, and the kernels store no scores.
    """
    size, sublayers = layout.bytes_per_weight, stack.attentions + 1
    mask = 1 if cuda else NOISE
    dropped = mask * sublayers if stack.dropout else 0
    of_width = stack.tokens * stack.width * (stack.kept_by_norms * size + dropped)
    # If no kernel supports attention dropout, a CPU computes attention in float32.
    core = 4 if stack.attention_dropout and not cuda else size
    inside = stack.feed_forward.kept * size + (mask + size if stack.feed_forward.dropout else 0)
    mixed = stack.tokens * stack.attentions * stack.heads_width * size
    split = stack.heads_kept * core + mixed + stack.tokens * stack.inner * inside
    copied = stack.copied + (0.0 if cuda and not stack.attention_dropout else stack.chunked)
    split += copied * core * stack.tokens * stack.heads_width
    split += 4 * stack.tokens * stack.heads * stack.attentions  # logarithm of the softmax sum of each query
    if layout.checkpointing == "none":
        num_scores, other = stack.scores, 0
        if stack.attention_dropout and (not cuda or stack.scores):
            stored = stack.attention.kept_scores if size == 4 and not (cuda or stack.scores) else 3
            num_scores, other = max(num_scores, stored), stored
        split += stack.heads * (num_scores * stack.pairs + other * stack.source_pairs) * core
    return of_width + split / layout.tensor


def logits(
    demand: Workload, layout: ParallelLayout, length: int, *, gpu_memory: float = 0.0
) -> tuple[float, float, float]:
    """Bytes of the heads: stored tensors, logits that exist at the same time, and copies of the token table's gradient.

    The heads store the features of each target and their gradient. Losses that predict tokens also store a gradient of
    the table in float32. Either the logits of one slice exist at the same time, or all logits. The gradient of the
    table is copied twice: scaled by the gradient of the loss, and in the precision of the table.

    A GPU with `gpu_memory` bytes has larger slices of equal sizes. It also pads the token table to whole tiles,
    which is a copy until the backward pass.
    """
    trunk, size = demand.recipe.model, layout.bytes_per_weight
    work, total, slices, table_gradients = demand.work(layout.rows / layout.sequence, length), 0.0, 0.0, 0.0
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
            table_gradients = max(table_gradients, (4 if size == 4 else 4 + size) * answers * trunk.table_width)
            at_once = max(count_logits_at_once(gpu_memory), answers)
            if gpu_memory:
                number = max(1, math.ceil(targets * answers / at_once))
                padded = size * (answers + TABLE_ROWS) * trunk.table_width if answers % TABLE_ROWS else 0.0
                slices = max(slices, LOGIT_BYTES * targets * answers / number + padded)
                continue
            # Logits and their softmax are in float32. In 16 bits, their gradient is stored, too. With several slices,
            # more is stored during the next slice.
            times = (3 if size == 4 else 4) if targets * answers > at_once else 2 if size == 4 else 2.5
            if layout.tensor == 1 and not loss.z_loss:  # the softmax replaces the logits
                times -= 1
            slices = max(slices, times * 4 * min(targets * answers, at_once))
    return total, slices, table_gradients
