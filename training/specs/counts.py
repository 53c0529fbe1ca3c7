"""Numbers that follow from the tensors of a model: weights, and what tensor parallelism splits."""

from collections.abc import Iterable

from training.specs.tensors import BlockTensors, ModelTensors, Parameter, Sublayer, TableSpec
from training.specs.weights import LayerWeights, Weights


def count_weights(model: ModelTensors) -> Weights:
    """The weights of a model without its heads, by what memory and communication depend on."""
    tables = sum(_size(tensor.parameters()) for tensor in model.outside if _is_split_table(tensor))
    others = sum(_size(tensor.parameters()) for tensor in model.outside if not _is_split_table(tensor))
    return Weights(tables, _merge(count_layers(stack) for stack in model.stacks), others)


def count_layers(stack: BlockTensors) -> tuple[LayerWeights, ...]:
    """The weights of each sublayer of a stack, with its norm."""
    return tuple(_count_sublayer(stack.number, sublayer) for sublayer in stack.sublayers)


def _count_sublayer(number: int, sublayer: Sublayer) -> LayerWeights:
    parameters = [one for tensor in (*sublayer.tensors, sublayer.norm) for one in tensor.parameters()]
    split = _size(one for one in parameters if one.axis is not None)
    copies = len(set(sublayer.owners)) or number
    return LayerWeights(number, copies, split, _size(parameters) - split)


def _merge(stacks: Iterable[tuple[LayerWeights, ...]]) -> tuple[LayerWeights, ...]:
    """The layers of all stacks; equal ones, such as the attentions of encoder and decoder, together."""
    found = dict[tuple[int, int, bool], LayerWeights]()
    for layers in stacks:
        for one in layers:
            key = one.split, one.whole, one.copies < one.number
            before = found.get(key, LayerWeights(0, 0, one.split, one.whole))
            found[key] = LayerWeights(before.number + one.number, before.copies + one.copies, one.split, one.whole)
    return tuple(found.values())


def count_products(sublayer: Sublayer) -> int:
    """Multiplications per token in the linear layers of a sublayer."""
    return sum(linear.products for linear in sublayer.linears if linear.per == "token")


def _is_split_table(tensor: object) -> bool:
    return isinstance(tensor, TableSpec) and tensor.cut == "rows"


def _size(parameters: Iterable[Parameter]) -> int:
    return sum(parameter.size for parameter in parameters)
