"""Time of a step: the sum of arithmetic, memory traffic, communication between devices, and waiting.

Each part has a roofline (Williams et al. 2009). So the fraction of the peak that a model uses (MFU) is a result, with
its reasons. Matrix products run at the fraction of the peak that large products reach. All other operations run at the
speed of memory. Communication does not overlap with computation. Further costs of an implementation are in
overheads.py.

In a ring of n workers, each worker sends (n - 1) / n of the gathered or reduced bytes. It sends twice as much if all
workers get the sum (arXiv:2104.04473, 3.2).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

from orchestration.planning.devices import Device
from orchestration.planning.layout import ParallelLayout
from orchestration.planning.memory import persistent, weights_of
from orchestration.planning.overheads import TENSORS, Overheads, sesame_overheads
from orchestration.planning.workload import Workload
from training.specs import BlockSpec, count_logits_at_once

# Elements that unfused operations read and write, per element of a block's state, forward and backward: norms,
# residuals, dropouts, bias, activation and their gradients.
OF_WIDTH: Final = 48
OF_INNER: Final = 12
OF_SCORES: Final = 20  # the same per attention score, if the scores are in memory
BACK: Final = 2.0  # a backward pass has twice the products of a forward pass
MEMORY_REACH: Final = 0.8  # fraction of the memory speed that copies reach
HOST_BANDWIDTH: Final = 25e9  # bytes/s in one direction between a device and its host
HOST_UPDATE: Final = 20e9  # bytes/s at which a host updates offloaded states, per device
DISK: Final = 5e9  # bytes/s in one direction of the local disks of a node, shared by all of its devices


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of one step, by cause."""

    products: float  # matrix products of the model
    attention: float = 0.0  # products of queries, keys and values
    recomputed: float = 0.0  # repeated products, for activations that were not stored
    traffic: float = 0.0  # norms, activations, dropout, softmax: at the speed of memory
    heads: float = 0.0  # logits, and the token table once per slice of logits
    launches: float = 0.0  # waiting between the starts of operations, and small kernels for single tensors
    tensor: float = 0.0  # reductions over a tensor group
    sequence: float = 0.0  # exchanges between heads and tokens, in both directions
    gathering: float = 0.0  # ZeRO-3: weights of each layer, forward and backward
    reducing: float = 0.0  # reduction of gradients over the replicas
    passing: float = 0.0  # states and their gradients between the stages of a pipeline
    bubble: float = 0.0  # waiting of pipeline stages
    update: float = 0.0  # update of the weights, and their distribution

    @property
    def total(self) -> float:
        return sum(seconds for _, seconds in self.items())

    def items(self) -> Iterator[tuple[str, float]]:
        """Name and seconds of each item that is not zero."""
        for field in fields(self):
            if value := getattr(self, field.name):
                yield field.name, value


@dataclass(frozen=True)
class CommunicationVolume:
    """Bytes sent per device and step, by operation."""

    reducing: float = 0.0  # gradients
    gathering: float = 0.0  # ZeRO-3: weights of each layer
    spreading: float = 0.0  # ZeRO-1 and 2: updated weights; ZeRO-3: weights that are not partitioned
    tensor: float = 0.0  # sums of activations over a tensor group
    sequence: float = 0.0  # queries, keys, values and the results of attention, between workers that share a sequence
    passing: float = 0.0  # states and gradients to other pipeline stages, and the token table with its gradient

    @property
    def total(self) -> float:
        return sum(sent for _, sent in self.items())

    def items(self) -> Iterator[tuple[str, float]]:
        """Name and bytes of each item that is not zero."""
        for field in fields(self):
            if value := getattr(self, field.name):
                yield field.name, value


def communication_volume(demand: Workload, layout: ParallelLayout, length: int, batch: int) -> CommunicationVolume:
    """Bytes that a device sends with DeepSpeed in a step of `batch` sequences of `length` tokens. In a pipeline, it is
    a device of a middle stage.

    Stages 0 and 1 reduce gradients once per step, stages 2 and 3 after each micro-batch. Stages 0 to 2 send the sum to
    all workers; stage 3 scatters it. Stage 3 gathers a layer again for the backward pass only if the limit of gathered
    weights is too small for all of them.
    """
    micro, size, weights = micro_batches(layout, batch), layout.bytes_per_weight, weights_of(demand, layout)
    part = (layout.replicas - 1) / layout.replicas  # fraction of the bytes that a worker sends in a ring
    whole = persistent(demand, layout, length) if layout.zero == 3 else 0.0
    reduced, spread = part * layout.reduce_bytes * weights, part * size * weights
    passes = 1 if weights - whole <= layout.live else 2
    summed = exchanged = 0.0
    again, stacks = _find_recomputed_fraction(layout), demand.blocks(batch / (layout.replicas * micro), length)
    for stack in stacks:
        share = _share(stack, demand, layout)
        # A block has two reductions in the forward and two in the backward pass (arXiv:1909.08053, 3), and two more for
        # recomputation.
        of_block = stack.tokens * stack.width * size * (stack.attentions + 1) * (2 + 3 * again)
        summed += share * 2 * (layout.tensor - 1) / layout.tensor * of_block
        # Four exchanges in the forward pass (queries, keys, values, results) and four in the backward pass
        # (arXiv:2309.14509, 3). Grouped queries have fewer keys and values.
        widths = 2 * (stack.heads_width + stack.attention.key_value_width) / layout.tensor
        of_heads = stack.tokens * widths * size * stack.attentions * (2 + 3 * again)
        exchanged += share * (layout.sequence - 1) / layout.sequence * of_heads
    return CommunicationVolume(
        reducing={0: 2, 1: 2, 2: 2 * micro, 3: micro}[layout.zero] * reduced,
        gathering=passes * micro * part * size * (weights - whole) if layout.zero == 3 else 0.0,
        spreading=part * size * whole if layout.zero == 3 else spread if layout.zero else 0.0,
        tensor=summed * micro,
        sequence=exchanged * micro,
        passing=_pipeline_bytes(demand, layout, sum(stack.tokens for stack in stacks) * micro),
    )


def _pipeline_bytes(demand: Workload, layout: ParallelLayout, tokens: float) -> float:
    """Bytes that a pipeline stage sends for `tokens` tokens: states forward, gradients backward, the token table to the
    last stage, and its float32 gradient back."""
    if layout.pipeline == 1:
        return 0.0
    size = layout.bytes_per_weight
    tables = (size + 4) * demand.borrowed_table / layout.tensor
    return 2 * tokens * demand.recipe.model.hidden_size * size + tables


def _find_recomputed_fraction(layout: ParallelLayout) -> float:
    """The fraction of a step's products that activation checkpointing repeats."""
    return {"none": 0.0, "selective": 0.0, "full": 1.0}[layout.checkpointing] / (1 + BACK)


def share_of_stage(demand: Workload, layout: ParallelLayout) -> float:
    """Fraction of the layers on the pipeline stage that has the most."""
    layers = demand.recipe.model.num_hidden_layers
    return -(-layers // layout.pipeline) / layers


def _share(stack: BlockSpec, demand: Workload, layout: ParallelLayout) -> float:
    """Number of blocks on the stage with the most layers; frozen blocks count less, because they have no backward
    pass."""
    return stack.number * share_of_stage(demand, layout) * (1.0 if stack.backward else 1 / (1 + BACK))


def micro_batches(layout: ParallelLayout, batch: int) -> int:
    """Number of micro-batches per worker and step."""
    return max(1, -(-batch // (layout.data * layout.rows)))


def ring(device: Device, members: int, adjacent: int) -> float:
    """Bytes/s in one direction of a ring of `members` devices; a node has one member per `adjacent` devices."""
    if members <= device.per_node // max(1, adjacent):
        return device.link
    in_a_node = max(1, device.per_node // max(1, adjacent))
    return min(device.link, in_a_node * device.network)


def step_seconds(
    demand: Workload,
    layout: ParallelLayout,
    device: Device,
    length: int,
    batch: int,
    *,
    scores_in_memory: bool = False,
    code: Overheads | None = None,
    filled: float = 0.0,
) -> StepSeconds:
    """Seconds of a step of `batch` sequences of `length` tokens.

    `scores_in_memory`: attention has no fused kernel. `code`: overheads beyond the roofline, by default those of
    Sesame. `filled`: the fraction of tokens that is not padding. If it is 0 (unknown), no token is counted as padding,
    but the time to pad and unpad is counted.
    """
    code = sesame_overheads(device) if code is None else code
    micro, size = micro_batches(layout, batch), layout.bytes_per_weight
    rows = (filled or 1.0) * batch / (layout.replicas * micro)
    memory_speed = device.bandwidth * MEMORY_REACH
    # The slowest stage has more layers than the average if they do not divide evenly. It is the last, with the heads.
    most = share_of_stage(demand, layout)
    of_heads = demand.flops_of_heads(rows, length)
    of_pairs = demand.flops_of_pairs(rows, length)
    flops = ((demand.flops(rows, length) - of_heads - of_pairs) * most + of_heads) / layout.tensor
    speed = device.peak(layout.precision) * device.reach
    stacks = demand.blocks(rows, length)
    products, attention = flops / speed, of_pairs * most / layout.tensor / _attention(stacks, layout, device, code)
    traffic = launches = 0.0
    again = _find_recomputed_fraction(layout)
    for stack in stacks:
        share = _share(stack, demand, layout)
        elements = _traffic(stack, layout, scores_in_memory) + size * _count_spread(stack, demand, code) * (filled < 1)
        traffic += share * elements / memory_speed
        launches += share * code.block_launches
    one = products + attention + traffic
    # In small models, the time between the starts of operations is longer than the operations.
    slow = max(0.0, launches * (code.launch_s or device.launch_s) - one)
    one += slow
    heads = _heads(demand, layout, rows, length, device, code)
    tensors = TENSORS * sum(_share(stack, demand, layout) for stack in stacks if stack.backward)
    weights, bytes_sent = weights_of(demand, layout), communication_volume(demand, layout, length, batch)
    over = ring(device, layout.replicas, layout.tensor)
    summed = bytes_sent.tensor / micro / ring(device, layout.tensor, 1)
    exchanged = bytes_sent.sequence / micro / ring(device, layout.sequence, layout.tensor)
    gathering, spread = bytes_sent.gathering / over, bytes_sent.spreading / over
    owned = weights / (layout.replicas if layout.zero else 1)
    disk = DISK / min(device.per_node, layout.devices)
    if layout.offload_parameters:
        gathering += micro * size * owned / (disk if layout.parameters_on_disk else HOST_BANDWIDTH)
    states = (16 + 8 * demand.recipe.optimizer.states) * owned
    working, passed = one * (1 + again) + heads + tensors * code.tensor_micro_s, 0.0
    if layout.pipeline > 1:  # states go forward, gradients backward; a stage waits for both
        far = device.link if layout.devices <= device.per_node else device.network
        tokens = sum(stack.tokens for stack in demand.blocks(rows, length))
        passed = 2 * tokens * demand.recipe.model.hidden_size * size / far
        spread += (size + 4) * demand.borrowed_table / layout.tensor / far  # the token table and its gradient
    update = states / memory_speed + spread
    if layout.offload:
        update = spread + (4 + size) * owned / HOST_BANDWIDTH + states / HOST_UPDATE
    if layout.offload and layout.optimizer_on_disk:  # master weights and moments are read and written
        update += 2 * 4 * (1 + demand.recipe.optimizer.states) * owned / disk
    if layout.parameters_on_disk:
        update += size * owned / disk
    return StepSeconds(
        products=products * micro,
        attention=attention * micro,
        recomputed=one * again * micro,
        traffic=traffic * micro,
        heads=heads * micro,
        launches=(slow + tensors * code.tensor_micro_s) * micro,
        tensor=summed * micro,
        sequence=exchanged * micro,
        gathering=gathering,
        reducing=bytes_sent.reducing / over,
        passing=passed * micro,
        bubble=(layout.pipeline - 1) * (working + summed + exchanged + passed),
        update=update + tensors * code.tensor_update_s,
    )


def _attention(stacks: Sequence[BlockSpec], layout: ParallelLayout, device: Device, code: Overheads) -> float:
    """FLOP/s of the products of queries, keys and values."""
    dropped = any(stack.attention_dropout or stack.scores for stack in stacks)
    reach = code.attention_dropped if dropped else code.attention
    return device.peak(layout.precision) * (reach if reach and layout.mixed else device.reach)


def _count_spread(stack: BlockSpec, demand: Workload, code: Overheads) -> float:
    """Elements that go through memory to pad and unpad the tokens of one block around attention.

    Zero if sequences are full, as in running text, or if a kernel accepts unpadded tokens.
    """
    is_full = demand.recipe.model.attention_mask == "causal"
    return 0.0 if is_full or not stack.attention_dropout else code.spreading * stack.tokens * stack.width


def _heads(
    demand: Workload, layout: ParallelLayout, rows: float, length: int, device: Device, code: Overheads
) -> float:
    """Seconds of the heads of a micro-batch, without their products. These are the memory traffic of the logits and of
    the token table for each slice of logits, and the launches of each slice."""
    trunk, work, speed, total = demand.recipe.model, demand.work(rows, length), device.bandwidth * MEMORY_REACH, 0.0
    at_once = code.logits_at_once or count_logits_at_once(device.memory if device.kind == "cuda" else 0.0)
    for loss in demand.recipe.losses:
        if not loss.names_tokens:
            continue
        answers, targets = trunk.answers(demand.vocab_size) / layout.tensor, loss.targets(work)
        slices = 1 if loss.kept_logits else math.ceil(targets * answers / max(at_once, answers))
        table = 4 * answers * trunk.table_width * code.of_table
        by_memory = (targets * answers * 4 * code.of_logits + slices * table) / speed
        total += max(by_memory, slices * code.slice_launches * code.launch_s)
    return total


def _traffic(stack: BlockSpec, layout: ParallelLayout, scores_in_memory: bool) -> float:
    """Bytes that one block reads and writes in memory, forward and backward, without its matrix products."""
    size = layout.bytes_per_weight
    inner = OF_INNER * stack.feed_forward.passing / 2 * stack.inner / layout.tensor
    elements = stack.tokens * (OF_WIDTH * stack.width + inner)
    if scores_in_memory or stack.scores:
        elements += OF_SCORES * stack.heads / layout.tensor * (stack.pairs + stack.source_pairs)
    return elements * size
