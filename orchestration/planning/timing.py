"""Time of a step: arithmetic, traffic to memory and between devices, and waiting, added up.

A roofline (Williams et al. 2009) of each part, so that the share of the peak that a model uses (MFU) is what comes out,
with its reasons: matrix products run at the share of the peak that such products reach, all else at the speed of
memory, and communication is not hidden behind either; overheads.py has what a code costs beside that. Rings: of n
workers each sends (n - 1) / n of what is gathered or reduced, twice that where all get the sum (arXiv:2104.04473, 3.2).
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
from training.specs import LOGITS_AT_ONCE, BlockSpec

# Elements that go through memory for each element of a block's state, forward and backward: the norms, residuals and
# dropouts, and bias, activation and their gradients; as many operations, unfused, read and write them
OF_WIDTH: Final = 48
OF_INNER: Final = 12
OF_SCORES: Final = 20  # where scores stand in memory
BACK: Final = 2.0  # a backward pass has twice the products of a forward pass
MEMORY_REACH: Final = 0.8  # share of a memory's speed that copies reach
HOST_BANDWIDTH: Final = 25e9  # bytes/s, one way, between a device and its host
HOST_UPDATE: Final = 20e9  # bytes/s at which a host updates offloaded states, for each device
DISK: Final = 5e9  # bytes/s, one way, of the local disks of a node, for all of its devices


@dataclass(frozen=True)
class StepSeconds:
    """Of one step."""

    products: float  # matrix products of the model
    attention: float = 0.0  # those of queries, keys and values
    recomputed: float = 0.0  # the same again, for activations that were not kept
    traffic: float = 0.0  # norms, activations, dropout, softmax: at the speed of memory
    heads: float = 0.0  # logits, and the token table for each slice of them
    launches: float = 0.0  # waiting from one operation to the next, and kernels of a tensor each
    tensor: float = 0.0  # sums over a tensor group
    sequence: float = 0.0  # exchanges of heads for tokens, and back
    gathering: float = 0.0  # ZeRO-3: weights of each layer, forward and backward
    reducing: float = 0.0  # gradients, over the replicas
    passing: float = 0.0  # states and their gradients, between the stages of a pipeline
    bubble: float = 0.0  # stages of a pipeline that wait
    update: float = 0.0  # of the weights, and spreading them again

    @property
    def total(self) -> float:
        return sum(seconds for _, seconds in self.items())

    def items(self) -> Iterator[tuple[str, float]]:
        """Name and seconds of each that is not nothing."""
        for field in fields(self):
            if value := getattr(self, field.name):
                yield field.name, value


@dataclass(frozen=True)
class CommunicationVolume:
    """Bytes that a device sends in one step, by what they are."""

    reducing: float = 0.0  # gradients
    gathering: float = 0.0  # ZeRO-3: weights of each layer
    spreading: float = 0.0  # ZeRO-1 and 2: updated weights; ZeRO-3: those that stay whole
    tensor: float = 0.0  # sums of activations over a tensor group
    sequence: float = 0.0  # queries, keys, values and what attention makes of them, over workers that share a row
    passing: float = 0.0  # states and their gradients to other stages of a pipeline, the token table and its gradient

    @property
    def total(self) -> float:
        return sum(sent for _, sent in self.items())

    def items(self) -> Iterator[tuple[str, float]]:
        """Name and bytes of each that is not nothing."""
        for field in fields(self):
            if value := getattr(self, field.name):
                yield field.name, value


def communication_volume(demand: Workload, layout: ParallelLayout, length: int, batch: int) -> CommunicationVolume:
    """Of a step of `batch` rows of `length` tokens, as DeepSpeed sends it; of a pipeline by a stage in the middle.

    Stages 0 and 1 sum gradients once a step, 2 and 3 after each micro-batch; all but stage 3, which scatters sums, give
    each worker the sum of all. Stage 3 gathers a layer anew for the backward pass only where not all weights fit into
    what may be whole at the same time.
    """
    micro, size, weights = micro_batches(layout, batch), layout.bytes_per_weight, weights_of(demand, layout)
    part = (layout.replicas - 1) / layout.replicas  # of a ring
    whole = persistent(demand, layout, length) if layout.zero == 3 else 0.0
    reduced, spread = part * layout.reduce_bytes * weights, part * size * weights
    passes = 1 if weights - whole <= layout.live else 2
    summed = exchanged = 0.0
    again, stacks = _again(layout), demand.blocks(batch / (layout.replicas * micro), length)
    for stack in stacks:
        share = _share(stack, demand, layout)
        # two sums forward and two backward of a block (arXiv:1909.08053, 3), two more if again
        of_block = stack.tokens * stack.width * size * (stack.attentions + 1) * (2 + 3 * again)
        summed += share * 2 * (layout.tensor - 1) / layout.tensor * of_block
        # four exchanges forward, of queries, keys, values and results, and four backward (arXiv:2309.14509, 3)
        of_heads = stack.tokens * stack.heads_width / layout.tensor * size * stack.attentions * 4 * (2 + 3 * again)
        exchanged += share * (layout.sequence - 1) / layout.sequence * of_heads
    return CommunicationVolume(
        reducing={0: 2, 1: 2, 2: 2 * micro, 3: micro}[layout.zero] * reduced,
        gathering=passes * micro * part * size * (weights - whole) if layout.zero == 3 else 0.0,
        spreading=part * size * whole if layout.zero == 3 else spread if layout.zero else 0.0,
        tensor=summed * micro,
        sequence=exchanged * micro,
        passing=_passed(demand, layout, sum(stack.tokens for stack in stacks) * micro),
    )


def _passed(demand: Workload, layout: ParallelLayout, tokens: float) -> float:
    """Bytes that a stage of a pipeline sends for so many tokens: states go down, gradients up, the token table to the
    last stage, and its gradient in float32 back."""
    if layout.pipeline == 1:
        return 0.0
    size = layout.bytes_per_weight
    tables = (size + 4) * demand.weights.tables / layout.tensor
    return 2 * tokens * demand.recipe.model.hidden_size * size + tables


def _again(layout: ParallelLayout) -> float:
    """The share of a step's products that activation checkpointing does a second time."""
    return {"none": 0.0, "selective": 0.0, "full": 1.0}[layout.checkpointing] / (1 + BACK)


def share_of_stage(demand: Workload, layout: ParallelLayout) -> float:
    """Of the layers, of the stage of a pipeline that has most."""
    layers = demand.recipe.model.num_hidden_layers
    return -(-layers // layout.pipeline) / layers


def _share(stack: BlockSpec, demand: Workload, layout: ParallelLayout) -> float:
    """Blocks of that stage; those that do not learn have no backward pass."""
    return stack.number * share_of_stage(demand, layout) * (1.0 if stack.backward else 1 / (1 + BACK))


def micro_batches(layout: ParallelLayout, batch: int) -> int:
    """Of each worker in a step."""
    return max(1, -(-batch // (layout.data * layout.rows)))


def ring(device: Device, members: int, adjacent: int) -> float:
    """Bytes/s, one way, of a ring of so many devices, of which `adjacent` follow each other in a node."""
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
    """Of a step of `batch` rows of `length` tokens. `scores_in_memory`: attention without a fused kernel; `code`: what
    it costs beside the roofline, Sesame's unless given; `filled`: the share of rows that is no padding, where that is
    known: 0 are full rows that count as if they had to be spread."""
    code = sesame_overheads(device) if code is None else code
    micro, size = micro_batches(layout, batch), layout.bytes_per_weight
    rows = (filled or 1.0) * batch / (layout.replicas * micro)
    memory_speed = device.bandwidth * MEMORY_REACH
    most = share_of_stage(demand, layout)  # the slowest stage has more than its share where it does not come out even,
    of_heads = demand.flops_of_heads(rows, length)  # and is the last, with the heads
    of_pairs = demand.flops_of_pairs(rows, length)
    flops = ((demand.flops(rows, length) - of_heads - of_pairs) * most + of_heads) / layout.tensor
    speed = device.peak(layout.precision) * device.reach
    stacks = demand.blocks(rows, length)
    products, attention = flops / speed, of_pairs * most / layout.tensor / _attention(stacks, layout, device, code)
    traffic = launches = 0.0
    again = _again(layout)
    for stack in stacks:
        share = _share(stack, demand, layout)
        elements = _traffic(stack, layout, scores_in_memory) + size * _spread(stack, demand, code) * (filled < 1)
        traffic += share * elements / memory_speed
        launches += share * code.block_launches
    one = products + attention + traffic
    slow = max(0.0, launches * (code.launch_s or device.launch_s) - one)  # small nets: from one operation to the next
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
    if layout.pipeline > 1:  # states go down, gradients up; a stage waits for both
        far = device.link if layout.devices <= device.per_node else device.network
        tokens = sum(stack.tokens for stack in demand.blocks(rows, length))
        passed = 2 * tokens * demand.recipe.model.hidden_size * size / far
        spread += (size + 4) * demand.weights.tables / layout.tensor / far  # the token table, and its gradient
    update = states / memory_speed + spread
    if layout.offload:
        update = spread + (4 + size) * owned / HOST_BANDWIDTH + states / HOST_UPDATE
    if layout.offload and layout.optimiser_on_disk:  # master weights and moments, read and written
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


def _spread(stack: BlockSpec, demand: Workload, code: Overheads) -> float:
    """Elements that go through memory to spread the tokens of one block to rectangles and back: where rows are not
    full, as those of a running text are, and no kernel takes them as they are."""
    is_full = demand.recipe.model.attention_mask == "causal"
    return 0.0 if is_full or not stack.attention_dropout else code.spreading * stack.tokens * stack.width


def _heads(
    demand: Workload, layout: ParallelLayout, rows: float, length: int, device: Device, code: Overheads
) -> float:
    """Seconds that the heads of a micro-batch take beside their products: logits through memory, the token table for
    each slice of them, and what starts a slice."""
    trunk, work, speed, total = demand.recipe.model, demand.work(rows, length), device.bandwidth * MEMORY_REACH, 0.0
    for loss in demand.recipe.losses:
        if not loss.names_tokens:
            continue
        answers, targets = trunk.answers(demand.vocab_size) / layout.tensor, loss.targets(work)
        slices = 1 if loss.kept_logits else math.ceil(targets * answers / max(LOGITS_AT_ONCE, answers))
        table = 4 * answers * trunk.table_width * code.of_table
        by_memory = (targets * answers * 4 * code.of_logits + slices * table) / speed
        total += max(by_memory, slices * code.slice_launches * code.launch_s)
    return total


def _traffic(stack: BlockSpec, layout: ParallelLayout, scores_in_memory: bool) -> float:
    """Bytes that one block reads and writes in memory, its matrix products aside, forward and backward."""
    size = layout.bytes_per_weight
    elements = stack.tokens * (OF_WIDTH * stack.width + OF_INNER * stack.inner / layout.tensor)
    if scores_in_memory or stack.scores:
        elements += OF_SCORES * stack.heads / layout.tensor * (stack.pairs + stack.source_pairs)
    return elements * size
