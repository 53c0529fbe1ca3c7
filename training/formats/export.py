"""Weights to files and back: our own folders, and folders that plain `transformers` loads.

Both hold safetensors and JSON only, so nothing is unpickled. The JSON that makes a folder valid is written last, and
the tied token table is one tensor in either. Weights go by our names, as in `Model.named_parameters()`:
what several layers share is there once.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

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


def describe_export(spec: ModelSpec, pad: int | None) -> str:
    """What `to_transformers` makes of a net whose padding is `pad`, in one line; BadInput where it makes nothing."""
    known = _known(spec)
    _, architecture = _format(known, pad)
    heads = [f"{loss.kind} head ({loss.not_exported})" for loss in spec.losses if loss not in known.losses]
    return f"{architecture}, without its {', '.join(heads)}" if heads else architecture


def model_type(spec: ModelSpec, pad: int | None) -> str:
    """The model type of transformers that `to_transformers` makes of a net; BadInput where it makes nothing."""
    return _format(_known(spec), pad)[0].model_type


def auto_class(architecture: str) -> str:
    """The Auto class of transformers that makes an architecture, so that all tensors of a folder are taken.

    >>> auto_class("BertForPreTraining"), auto_class("GPT2LMHeadModel"), auto_class("BertModel")
    ('AutoModelForPreTraining', 'AutoModelForCausalLM', 'AutoModel')
    """
    kinds = {"ForMaskedLM": "ForMaskedLM", "ForConditionalGeneration": "ForSeq2SeqLM", "LMHeadModel": "ForCausalLM"}
    kinds = {"WithLMHeadModel": "ForPreTraining", "ForPreTraining": "ForPreTraining"} | kinds
    return "AutoModel" + next((auto for suffix, auto in kinds.items() if architecture.endswith(suffix)), "")


def without_heads(architecture: str) -> str:
    """The class of transformers that has the trunk alone, as `AutoModel` makes it.

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
    """Write a folder for `from_pretrained`: model.safetensors (or several and an index), tokenizer, config.json.

    The class is the one that computes the same; a head that none has is left out (see `described`). `heads` False:
    the trunk alone, which `AutoModel` takes without a word; it has a pooler there, which begins at random where this
    net has none. BadInput where transformers has no such net. `rows`: what the net was trained on, so that its
    tokenizer puts the same around texts. `beat` is called before each tensor is written.
    """
    vocab = Vocab.load(vocab_dir)
    vocab = rows.reading(vocab) if rows else vocab
    if vocab.size > spec.vocab_size:
        sizes = f"{vocab.size} pieces, the net's table {spec.vocab_size} rows"
        raise BadInput(f"{vocab_dir}: has {sizes}; give the vocabulary that the net was trained with")
    known = _known(spec)
    format, architecture = _format(known, vocab.pad)
    left_out = tuple(f"heads.{loss.head_name}." for loss in spec.losses if loss.not_exported)
    names = [name for name in state if not name.startswith(left_out) and (heads or _is_of_trunk(name))]
    architecture = architecture if heads else without_heads(architecture)
    pooler = "" if heads else format.pooler
    (out / "config.json").unlink(missing_ok=True)
    tensors = _by_layer(format, state, names, known, pooler)
    sharded.write(sharded.with_heartbeat(tensors, beat), out, "model", {"format": "pt"}, shard_bytes=shard_bytes)
    save_tokenizer(vocab, spec.model, out)
    config = _common(spec, vocab) | {"model_type": format.model_type, "architectures": [architecture]}
    write_json(out / "config.json", config | format.config(known, vocab))


def save_tokenizer(vocab: Vocab, trunk: Architecture, out: Path) -> None:
    """Write the files for `AutoTokenizer`. T5's sentinels are no special tokens there: decoding would drop them."""
    with_open_sentinels(vocab).save(out)
    write_json(out / "tokenizer_config.json", _tokenizer_config(vocab, trunk))


def _by_layer(
    format: ModelFormat, state: Weights, given: Iterable[str], spec: ModelSpec, pooler: str
) -> Iterator[tuple[str, Tensor]]:
    """Our tensors of these names as they have them, with a pooler of this name where there is none; a layer at a time
    where their tensors of it are made of ours of it alone."""
    groups: dict[str, list[str]] = {}
    for name in given:
        found = re.match(r".*?\.\d+\.", name) if format.by_layer else None
        groups.setdefault(found[0] if found else "", []).append(name)
    names = set[str]()
    for group in groups.values():
        tensors = format.theirs({name: state[name] for name in group}, spec)
        names |= tensors.keys()
        while tensors:  # each goes as soon as it is taken
            name = next(iter(tensors))
            yield name, tensors.pop(name)
    yield from _pooler(pooler, names, spec.model).items()


def pipeline(folder: Path) -> TransformersPipeline:
    """What a pipeline of transformers does with the net in a folder of `to_transformers`."""
    config = read_json(folder / "config.json")
    return next(format for format in FORMATS if format.model_type == config["model_type"]).pipeline(config)


def _is_of_trunk(name: str) -> bool:
    """Whether a tensor is no head's, or of the pooler of pairs, which is transformers' own."""
    return not name.startswith("heads.") or name.startswith("heads.pair_label.pooler.")


def _pooler(name: str, tensors: Collection[str], trunk: Architecture) -> dict[str, Tensor]:
    """A pooler as transformers would begin it, where its class has one and these tensors have not."""
    if not name or f"{name}.weight" in tensors:
        return {}
    weight = torch.empty(trunk.hidden_size, trunk.hidden_size)
    weight.normal_(0, trunk.init_std, generator=torch.Generator().manual_seed(0))
    return {f"{name}.weight": weight, f"{name}.bias": torch.zeros(trunk.hidden_size)}


def _known(spec: ModelSpec) -> ModelSpec:
    """The spec without the heads that no class of transformers has, where it has others."""
    losses = tuple(loss for loss in spec.losses if not loss.not_exported)
    return replace(spec, losses=losses) if losses else spec


def _format(spec: ModelSpec, pad: int | None) -> tuple[ModelFormat, str]:
    """Format and class of transformers that compute what `spec` computes."""
    for format in FORMATS:
        if architecture := format.architecture(spec, pad):
            return format, architecture
    kinds = ", ".join(loss.kind for loss in spec.losses)
    raise BadInput(
        f"export: transformers has no {spec.model.kind} like this ({', '.join(_unusual(spec.model))}) for {kinds}; "
        "our own files of it are in the run's folder `weights`"
    )


def _unusual(part: Any, usual: Any = None, place: str = "") -> Iterator[str]:
    """The keys of a part, and of parts inside of it, whose values are not those of `usual`, or not its defaults."""
    for field in fields(part):
        value = getattr(part, field.name)
        default = getattr(usual, field.name) if type(usual) is type(part) else field.default
        if is_dataclass(value):
            yield from _unusual(value, default, f"{place}{field.name}.")
        elif value != default:
            yield f"{place}{field.name} {value}"


def _common(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    """What is in each config.json."""
    return {
        "vocab_size": spec.vocab_size,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "pad_token_id": vocab.pad,
        "bos_token_id": vocab.sep if vocab.cls is None else vocab.cls,
        "eos_token_id": vocab.sep,
    }


def _tokenizer_config(vocab: Vocab, trunk: Architecture) -> dict[str, Any]:
    """tokenizer_config.json: whatever tokenizer.json is, with its special tokens by name."""
    ids = {"unk_token": vocab.unk, "cls_token": vocab.cls, "sep_token": vocab.sep, "mask_token": vocab.mask}
    first = vocab.sep if vocab.cls is None else vocab.cls  # as in config.json
    ids |= {"pad_token": vocab.pad, "bos_token": first, "eos_token": vocab.sep}
    columns = ["input_ids", *(["token_type_ids"] if trunk.type_vocab_size > 1 else []), "attention_mask"]
    return {name: vocab.piece(id) for name, id in ids.items() if id is not None} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": trunk.longest,
        "model_input_names": columns,
    }
