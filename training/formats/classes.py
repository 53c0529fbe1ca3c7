"""The class of `transformers` for a model, and the pipeline for a directory. This module does not import torch."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

from preprocessing.errors import BadInput
from training.formats import sharded
from training.formats.all import FORMATS
from training.formats.format import Format
from training.formats.spec_file import read_json, write_json
from training.formats.transformers_pipeline import TransformersPipeline
from training.model_spec import ModelSpec

TASK_PIPELINES: Final = {  # by the end of the name of a class with a task head
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
}
SERVED: Final = ("text-classification", "token-classification")


def describe_export(spec: ModelSpec, pad: int | None) -> str:
    """Describe the result of `to_transformers` in one line; `pad` is the padding ID. Raises BadInput if it cannot
    export."""
    format, architecture = choose_format(exportable_part(spec), pad)
    missing = missing_heads(spec, format, architecture)
    heads = [f"{loss.kind} head ({missing[loss.head_name]})" for loss in spec.losses if loss.head_name in missing]
    return f"{architecture}, without its {', '.join(heads)}" if heads else architecture


def model_type(spec: ModelSpec, pad: int | None) -> str:
    """Return the model type that `to_transformers` exports. Raises BadInput if it cannot export."""
    return choose_format(exportable_part(spec), pad)[0].model_type


def auto_class(architecture: str) -> str:
    """Return the Auto class of transformers that loads all tensors of an architecture.

    >>> auto_class("BertForPreTraining"), auto_class("GPT2LMHeadModel"), auto_class("BertModel")
    ('AutoModelForPreTraining', 'AutoModelForCausalLM', 'AutoModel')
    """
    kinds = {
        "WithLMHeadModel": "ForPreTraining",
        "LMHeadModel": "ForCausalLM",
        "ForConditionalGeneration": "ForSeq2SeqLM",
        "ForQuestionAnsweringSimple": "ForQuestionAnswering",
    }
    kinds |= {name: name for name in ("ForPreTraining", "ForMaskedLM", "ForCausalLM", *TASK_PIPELINES)}
    return "AutoModel" + next((auto for suffix, auto in kinds.items() if architecture.endswith(suffix)), "")


def without_heads(architecture: str) -> str:
    """Return the class of transformers without heads, as loaded by `AutoModel`.

    >>> without_heads("BertForPreTraining"), without_heads("XLMWithLMHeadModel")
    ('BertModel', 'XLMModel')
    """
    return re.sub("(For[A-Z][A-Za-z]+|(With)?LMHeadModel)$", "Model", architecture)


def pipeline(folder: Path) -> TransformersPipeline:
    """Return the pipeline of transformers for a directory written by `to_transformers` or `task_to_transformers`."""
    config = read_json(folder / "config.json")
    architecture = config["architectures"][0]
    for suffix, task in TASK_PIPELINES.items():
        if suffix in architecture:
            lacks = "" if task in SERVED else f"transformers 5 has no pipeline for {task}"
            return TransformersPipeline(task, architecture, lacks)
    return next(format for format in FORMATS if format.model_type == config["model_type"]).pipeline(config)


def uses_all_weights(export: Path) -> bool:
    """Whether the class of the pipeline has all tensors of an exported model."""
    unused = pipeline(export).unused
    return not unused or not any(name.startswith(unused) for name, _ in sharded.read_bytes(export, "model"))


def write_for_pipeline(export: Path, out: Path) -> bool:
    """Write the exported model to `out` without the tensors that the class of its pipeline lacks; transformers would
    warn of them at each load. Returns False, and writes nothing, if the class has all tensors.
    """
    if uses_all_weights(export):
        return False
    unused = pipeline(export).unused
    kept = ((name, one) for name, one in sharded.read_bytes(export, "model") if not name.startswith(unused))
    out.mkdir()
    sharded.write(kept, out, "model", {"format": "pt"})
    write_json(
        out / "config.json", read_json(export / "config.json") | {"architectures": [pipeline(export).model_class]}
    )
    return True


def exportable_part(spec: ModelSpec) -> ModelSpec:
    """The spec without heads that no class of transformers supports, unless no head would be left."""
    losses = tuple(loss for loss in spec.losses if not loss.not_exported)
    return replace(spec, losses=losses) if losses else spec


def missing_heads(spec: ModelSpec, format: Format, architecture: str) -> dict[str, str]:
    """The heads that are not exported: why, by name."""
    unknown = {loss.head_name: loss.not_exported for loss in spec.losses if loss.not_exported}
    return unknown | format.missing_heads(architecture)


def choose_format(spec: ModelSpec, pad: int | None) -> tuple[Format, str]:
    """The format and the class of transformers for `spec`. Raises BadInput if there is none."""
    for format in FORMATS:
        if architecture := format.architecture(spec, pad):
            return format, architecture
    kinds = ", ".join(loss.kind for loss in spec.losses)
    raise BadInput(
        f"export: transformers has no class for this {spec.model.kind} ({', '.join(_unusual(spec.model))}) with the "
        f"losses {kinds}; use Sesame's own files in the directory `weights` of the run"
    )


def _unusual(part: Any, usual: Any = None, place: str = "") -> Iterator[str]:
    """Yield the keys of a part, and of nested parts, whose values differ from `usual` or from their defaults."""
    for field in fields(part):
        value = getattr(part, field.name)
        default = getattr(usual, field.name) if type(usual) is type(part) else field.default
        if is_dataclass(value):
            yield from _unusual(value, default, f"{place}{field.name}.")
        elif value != default:
            yield f"{place}{field.name} {value}"
