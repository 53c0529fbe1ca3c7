"""Numbers that follow from the tensors of a model: weights, and what tensor parallelism splits."""

from collections.abc import Iterable, Iterator

from training.specs.tensors import ModelTensors, Parameter, Sublayer, TableSpec
from training.specs.weights import LayerWeights, Weights


def count_weights(model: ModelTensors) -> Weights:
    """The weights of a model without its heads, by what memory and communication depend on."""
    tables = sum(_size(tensor.parameters()) for tensor in model.outside if _is_split_table(tensor))
    others = sum(_size(tensor.parameters()) for tensor in model.outside if not _is_split_table(tensor))
    layers = (one for stack in model.stacks for sublayer in stack.sublayers for one in _count(stack.number, sublayer))
    return Weights(tables, tuple(layers), others)


def _count(number: int, sublayer: Sublayer) -> Iterator[LayerWeights]:
    """The weights of a sublayer in `number` layers, with its norm unless the first layers lack that."""
    norm = () if sublayer.norm is None else tuple(sublayer.norm.parameters())
    tensors = tuple(one for tensor in sublayer.tensors for one in tensor.parameters())
    copies = len(set(sublayer.owners)) or number
    if norm and sublayer.norm_from:
        with_norm = number - sublayer.norm_from
        yield LayerWeights(with_norm, with_norm, 0, _size(norm))
        norm = ()
    split = _size(one for one in (*tensors, *norm) if one.axis is not None)
    yield LayerWeights(number, copies, split, _size((*tensors, *norm)) - split)


def count_products(sublayer: Sublayer) -> int:
    """Multiplications per token in the linear layers of a sublayer."""
    return sum(linear.products for linear in sublayer.linears if linear.per == "token")


def _is_split_table(tensor: object) -> bool:
    return isinstance(tensor, TableSpec) and tensor.cut == "rows"


def _size(parameters: Iterable[Parameter]) -> int:
    return sum(parameter.size for parameter in parameters)
