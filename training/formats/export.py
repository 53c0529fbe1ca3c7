"""Export of weights to directories that `transformers` loads.

They contain safetensors and JSON only, so no file is unpickled. The JSON file that makes a directory valid is
written last. The tied embedding table is stored once. Weights have our names, as in `Model.named_parameters()`;
parameters shared by several layers are stored once.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.sampling import ExampleSpec
from preprocessing.tokenization import Vocab, with_open_sentinels
from training.formats import sharded
from training.formats.all import FORMATS
from training.formats.format import ModelFormat, TransformersPipeline
from training.formats.weights import Weights, read_json, write_json
from training.model import ModelSpec
from training.specs import Architecture

TASK_PIPELINES: Final = {  # by the end of the name of a class with a task head
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
}
SERVED: Final = ("text-classification", "token-classification")
NO_KEYS: Final[Mapping[str, Any]] = MappingProxyType({})


def describe_export(spec: ModelSpec, pad: int | None) -> str:
    """Describe the result of `to_transformers` in one line; `pad` is the padding ID. Raises BadInput if it cannot
    export."""
    exportable = _exportable(spec)
    _, architecture = _format(exportable, pad)
    heads = [f"{loss.kind} head ({loss.not_exported})" for loss in spec.losses if loss not in exportable.losses]
    return f"{architecture}, without its {', '.join(heads)}" if heads else architecture


def model_type(spec: ModelSpec, pad: int | None) -> str:
    """Return the model type that `to_transformers` exports. Raises BadInput if it cannot export."""
    return _format(_exportable(spec), pad)[0].model_type


def auto_class(architecture: str) -> str:
    """Return the Auto class of transformers that loads all tensors of an architecture.

    >>> auto_class("BertForPreTraining"), auto_class("GPT2LMHeadModel"), auto_class("BertModel")
    ('AutoModelForPreTraining', 'AutoModelForCausalLM', 'AutoModel')
    """
    kinds = {"ForMaskedLM": "ForMaskedLM", "ForConditionalGeneration": "ForSeq2SeqLM", "LMHeadModel": "ForCausalLM"}
    kinds = {"WithLMHeadModel": "ForPreTraining", "ForPreTraining": "ForPreTraining"} | kinds
    tasks = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")
    kinds |= {name: name for name in tasks} | {"ForQuestionAnsweringSimple": "ForQuestionAnswering"}
    return "AutoModel" + next((auto for suffix, auto in kinds.items() if architecture.endswith(suffix)), "")


def without_heads(architecture: str) -> str:
    """Return the class of transformers without heads, as loaded by `AutoModel`.

    >>> without_heads("BertForPreTraining"), without_heads("XLMWithLMHeadModel")
    ('BertModel', 'XLMModel')
    """
    return re.sub("(For[A-Z][A-Za-z]+|(With)?LMHeadModel)$", "Model", architecture)


def to_transformers(
    state: Weights,
    spec: ModelSpec,
    vocab_dir: Path,
    out: Path,
    *,
    heads: bool = True,
    shard_bytes: int = sharded.SHARD_BYTES,
    rows: ExampleSpec | None = None,
    beat: Callable[[], None] | None = None,
) -> None:
    """Write a directory for `from_pretrained`: model.safetensors (or shards and an index), tokenizer, config.json.

    The class is one that computes the same function. A head that no class has is omitted (see `describe_export`).
    With `heads=False`, write the trunk only, for `AutoModel`; a pooler that the model lacks is randomly initialized.
    `rows` is the example format of the training, so that the tokenizer adds the same special tokens. `beat` is
    called before each tensor is written. Raises BadInput if transformers has no class for the model.
    """
    vocab = Vocab.load(vocab_dir)
    vocab = rows.adapt_tokenizer(vocab) if rows else vocab
    if vocab.size > spec.vocab_size:
        sizes = f"{vocab.size} tokens, but the embedding table has {spec.vocab_size} rows"
        raise BadInput(f"{vocab_dir}: the vocabulary has {sizes}; give the vocabulary that the model was trained with")
    exportable = _exportable(spec)
    format, architecture = _format(exportable, vocab.pad)
    left_out = tuple(f"heads.{loss.head_name}." for loss in spec.losses if loss.not_exported)
    names = [name for name in state if not name.startswith(left_out) and (heads or _is_of_trunk(name))]
    architecture = architecture if heads else without_heads(architecture)
    pooler = "" if heads else format.pooler
    (out / "config.json").unlink(missing_ok=True)
    tensors = by_layer(format, state, names, exportable, pooler)
    sharded.write(sharded.with_heartbeat(tensors, beat), out, "model", {"format": "pt"}, shard_bytes=shard_bytes)
    save_tokenizer(vocab, spec.model, out)
    config = common_config(spec, vocab) | {"model_type": format.model_type, "architectures": [architecture]}
    write_json(out / "config.json", config | format.config(exportable, vocab))


def save_tokenizer(vocab: Vocab, trunk: Architecture, out: Path, more: Mapping[str, Any] = NO_KEYS) -> None:
    """Write the files for `AutoTokenizer`. T5's sentinels are not special tokens there, so that decoding keeps them.

    `more`: additional keys of tokenizer_config.json.
    """
    with_open_sentinels(vocab).save(out)
    write_json(out / "tokenizer_config.json", _tokenizer_config(vocab, trunk) | dict(more))


def by_layer(
    format: ModelFormat, state: Weights, names_to_export: Iterable[str], spec: ModelSpec, pooler: str = ""
) -> Iterator[tuple[str, Tensor]]:
    """Yield the named tensors in the format of transformers, and a pooler if it is missing.

    One layer is converted at a time, if the format allows it.
    """
    groups: dict[str, list[str]] = {}
    for name in names_to_export:
        match = re.match(r".*?\.\d+\.", name) if format.by_layer else None
        groups.setdefault(match[0] if match else "", []).append(name)
    names = set[str]()
    for group in groups.values():
        tensors = format.theirs({name: state[name] for name in group}, spec)
        names |= tensors.keys()
        while tensors:  # frees each tensor as soon as it is written
            name = next(iter(tensors))
            yield name, tensors.pop(name)
    yield from _pooler(pooler, names, spec.model).items()


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
    return not unused or not any(name.startswith(unused) for name in sharded.read(export, "model"))


def write_for_pipeline(export: Path, out: Path) -> bool:
    """Write the exported model to `out` without the tensors that the class of its pipeline lacks; transformers would
    warn of them at each load. Returns False, and writes nothing, if the class has all tensors.
    """
    if uses_all_weights(export):
        return False
    unused = pipeline(export).unused
    kept = ((name, one) for name, one in sharded.read(export, "model").items() if not name.startswith(unused))
    out.mkdir()
    sharded.write(kept, out, "model", {"format": "pt"})
    write_json(
        out / "config.json", read_json(export / "config.json") | {"architectures": [pipeline(export).model_class]}
    )
    return True


def _is_of_trunk(name: str) -> bool:
    """Whether a tensor is part of the trunk, or of the pooler of sentence pairs, which transformers counts as trunk."""
    return not name.startswith("heads.") or name.startswith("heads.pair_label.pooler.")


def _pooler(name: str, tensors: Collection[str], trunk: Architecture) -> dict[str, Tensor]:
    """A pooler with the initialization of transformers, if the class has one and the tensors do not."""
    if not name or f"{name}.weight" in tensors:
        return {}
    weight = torch.empty(trunk.hidden_size, trunk.hidden_size)
    weight.normal_(0, trunk.init_std, generator=torch.Generator().manual_seed(0))
    return {f"{name}.weight": weight, f"{name}.bias": torch.zeros(trunk.hidden_size)}


def _exportable(spec: ModelSpec) -> ModelSpec:
    """The spec without heads that no class of transformers supports, unless no head would be left."""
    losses = tuple(loss for loss in spec.losses if not loss.not_exported)
    return replace(spec, losses=losses) if losses else spec


def _format(spec: ModelSpec, pad: int | None) -> tuple[ModelFormat, str]:
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


def common_config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    """The keys of config.json that all formats have."""
    return {
        "vocab_size": spec.vocab_size,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "pad_token_id": vocab.pad,
        "bos_token_id": vocab.sep if vocab.cls is None else vocab.cls,
        "eos_token_id": vocab.sep,
    }


def _tokenizer_config(vocab: Vocab, trunk: Architecture) -> dict[str, Any]:
    """The content of tokenizer_config.json: the special tokens by name, for any tokenizer.json."""
    ids = {"unk_token": vocab.unk, "cls_token": vocab.cls, "sep_token": vocab.sep, "mask_token": vocab.mask}
    first = vocab.sep if vocab.cls is None else vocab.cls  # same as in config.json
    ids |= {"pad_token": vocab.pad, "bos_token": first, "eos_token": vocab.sep}
    columns = ["input_ids", *(["token_type_ids"] if trunk.type_vocab_size > 1 else []), "attention_mask"]
    return {name: vocab.piece(id) for name, id in ids.items() if id is not None} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": trunk.longest,
        "model_input_names": columns,
    }
