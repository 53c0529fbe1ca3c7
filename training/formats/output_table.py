"""Whether a model predicts tokens with its token table: transformers decides by the tensors in the files."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from training.formats.names import is_of_task

if TYPE_CHECKING:  # formats are imported without torch
    from training.formats.names import Weights
    from training.specs import Architecture


def tie_as_stored(tokens: str, *output: str, always: bool = False) -> "Callable[[Architecture, Weights], Architecture]":
    """A function that ties or unties the output table of an architecture as transformers does.

    `output` has the names of the output table, that of older files last. If config.json says that it is the token
    table, but the files have two different tables, they are not tied. Classes with task heads have no output table.
    `always`: the class ties the tables whenever the files have only one, whatever config.json says (T5).
    """

    def tie(trunk: "Architecture", tensors: "Weights") -> "Architecture":
        model: Any = trunk  # all architectures with an untied table have the key
        table = next((tensors[name] for name in output if name in tensors), None)
        if table is None:
            return replace(model, tie_word_embeddings=True) if always or is_of_task(tensors) else trunk
        if (model.tie_word_embeddings or always) and tokens in tensors:
            return replace(model, tie_word_embeddings=table.equal(tensors[tokens]))
        return trunk

    return tie
