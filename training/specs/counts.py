"""Numbers that follow from the tensors of a model: weights, and what tensor parallelism splits."""

from collections.abc import Iterable

from training.specs.tensors import ModelTensors, Parameter, Sublayer, TableSpec
from training.specs.weights import LayerWeights, Weights


def count_weights(model: ModelTensors) -> Weights:
    """The weights of a model without its heads, by what memory and communication depend on."""
    tables = sum(_size(tensor.parameters()) for tensor in model.outside if _is_split_table(tensor))
    others = sum(_size(tensor.parameters()) for tensor in model.outside if not _is_split_table(tensor))
    layers = (_count_sublayer(stack.number, sublayer) for stack in model.stacks for sublayer in stack.sublayers)
    return Weights(tables, tuple(layers), others)


def _count_sublayer(number: int, sublayer: Sublayer) -> LayerWeights:
    """The weights of a sublayer with its norm, in `number` layers."""
    parameters = [one for tensor in (*sublayer.tensors, sublayer.norm) for one in tensor.parameters()]
    split = _size(one for one in parameters if one.axis is not None)
    copies = len(set(sublayer.owners)) or number
    return LayerWeights(number, copies, split, _size(parameters) - split)


def count_products(sublayer: Sublayer) -> int:
    """Multiplications per token in the linear layers of a sublayer."""
    return sum(linear.products for linear in sublayer.linears if linear.per == "token")


def _is_split_table(tensor: object) -> bool:
    return isinstance(tensor, TableSpec) and tensor.cut == "rows"


def _size(parameters: Iterable[Parameter]) -> int:
    return sum(parameter.size for parameter in parameters)
