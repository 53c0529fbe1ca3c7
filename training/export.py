"""Weights to files and back: our own folders, and folders that plain `transformers` loads.

Both hold safetensors and JSON only, so nothing is unpickled. The JSON that makes a folder valid is written last, and
the tied token table is one tensor in either. Weights go by our names, as in `Model.named_parameters()`:
what several layers share is there once.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import write_atomic
from preprocessing.knob import part
from preprocessing.vocab import Vocab
from training.formats import FORMATS
from training.formats.named import Format
from training.model import Model, ModelSpec
from training.spec import Loss, Trunk

Weights = Mapping[str, Tensor]

# Heads that no class of transformers has, while one may have the rest of the net.
LEFT_OUT = {"span_boundary": "transformers has none, and SpanBERT was published without it"}


def save_weights(state: Weights, spec: ModelSpec, folder: Path) -> None:
    """Write `weights.safetensors`, then `spec.json` with the spec and the sha256 of the weights."""
    content = safetensors.torch.save(dict(state))
    write_atomic(folder / "weights.safetensors", content)
    _write_json(folder / "spec.json", {"spec": asdict(spec), "sha256": hashlib.sha256(content).hexdigest()})


def load_spec(folder: Path) -> ModelSpec:
    """The spec in a folder of `save_weights`. BadInput where there is none, or one of another version."""
    stored = _read_json(folder / "spec.json")
    try:
        parts = dict(stored["spec"])
        trunk, losses = part(Trunk, parts.pop("trunk")), tuple(part(Loss, loss) for loss in parts.pop("losses"))
        return ModelSpec(trunk=trunk, losses=losses, **parts)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder / 'spec.json'}: not a spec of this version ({error}); export the run again") from None


def load_weights(folder: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Read what `save_weights` wrote. BadInput where a file is missing, garbled, or not the one that was written."""
    wanted = str(_read_json(folder / "spec.json").get("sha256"))
    content, spec = _read(folder / "weights.safetensors"), load_spec(folder)
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise BadInput(
            f"{folder / 'weights.safetensors'}: sha256 is {found[:12]}, spec.json says {wanted[:12]}: "
            "damaged or exchanged; export the run again"
        )
    return spec, safetensors.torch.load(content)


def described(spec: ModelSpec, pad: int | None) -> str:
    """What `to_transformers` makes of a net whose padding is `pad`, in one line; BadInput where it makes nothing."""
    known = _known(spec)
    _, architecture = _format(known, pad)
    heads = [f"{loss.kind} head ({LEFT_OUT[loss.kind]})" for loss in spec.losses if loss not in known.losses]
    return f"{architecture}, without its {', '.join(heads)}" if heads else architecture


def to_transformers(state: Weights, spec: ModelSpec, vocab_dir: Path, out: Path) -> None:
    """Write a folder for `from_pretrained`: model.safetensors, the tokenizer's files and config.json.

    The class is the one that computes the same; a head that none has is left out (see `described`). BadInput where
    transformers has no such net.
    """
    vocab = Vocab.load(vocab_dir)
    if vocab.size > spec.vocab_size:
        sizes = f"{vocab.size} pieces, the net's table {spec.vocab_size} rows"
        raise BadInput(f"{vocab_dir}: has {sizes}; give the vocabulary that the net was trained with")
    known = _known(spec)
    format, architecture = _format(known, vocab.pad)
    heads = tuple(f"heads.{kind}." for kind in LEFT_OUT)
    tensors = format.theirs({name: tensor for name, tensor in state.items() if not name.startswith(heads)}, known)
    (out / "config.json").unlink(missing_ok=True)
    write_atomic(out / "model.safetensors", safetensors.torch.save(tensors, metadata={"format": "pt"}))
    vocab.save(out)
    _write_json(out / "tokenizer_config.json", _tokenizer_config(vocab, spec.trunk))
    config = _common(spec, vocab) | {"model_type": format.model_type, "architectures": [architecture]}
    _write_json(out / "config.json", config | format.config(known, vocab))


def from_transformers(folder: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Spec and weights of a folder that `save_pretrained` or `to_transformers` wrote; its heads are those with tensors.

    BadInput where the folder does not hold a net of the kinds that we build.
    """
    where, file = folder / "config.json", folder / "model.safetensors"
    config = _read_json(where)
    try:
        tensors = safetensors.torch.load(_read(file))
    except SafetensorError as error:
        raise BadInput(f"{file}: not a safetensors file ({error}); fetch it again") from None
    types = {format.model_type: format for format in FORMATS}
    if config.get("model_type") not in types:
        raise BadInput(f"{where}: model_type is {config.get('model_type')!r}, allowed is one of {sorted(types)}")
    format = types[config["model_type"]]
    try:
        spec = format.spec(config, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{where}: describes no net that we build ({error})") from None
    with torch.device("meta"):
        wanted = dict(Model(spec.trunk, spec.losses, spec.vocab_size, seed=0).named_parameters())
    try:
        state = format.ours(tensors, spec, wanted)
    except KeyError as error:
        missing = error.args[0]
        raise BadInput(
            f"{file}: has no tensor {missing}, which config.json asks for; fetch both of one model"
        ) from None
    for name, empty in wanted.items():
        if state[name].shape != empty.shape:
            found, asked = list(state[name].shape), list(empty.shape)
            raise BadInput(f"{file}: {name} is {found}, config.json asks for {asked}; fetch both of one model")
    return spec, state


def _known(spec: ModelSpec) -> ModelSpec:
    """The spec without the heads that no class of transformers has, where it has others."""
    losses = tuple(loss for loss in spec.losses if loss.kind not in LEFT_OUT)
    return replace(spec, losses=losses) if losses else spec


def _format(spec: ModelSpec, pad: int | None) -> tuple[Format, str]:
    """Format and class of transformers that compute what `spec` computes."""
    for format in FORMATS:
        if architecture := format.architecture(spec, pad):
            return format, architecture
    kinds = ", ".join(loss.kind for loss in spec.losses)
    default = {field.name: field.default for field in fields(spec.trunk)}
    knobs = ", ".join(f"{knob} {value}" for knob, value in asdict(spec.trunk).items() if value != default[knob])
    raise BadInput(
        f"export: transformers has no {spec.trunk.kind} like this ({knobs}) for {kinds}; "
        "our own files of it are in the run's folder `weights`"
    )


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


def _tokenizer_config(vocab: Vocab, trunk: Trunk) -> dict[str, Any]:
    """tokenizer_config.json: whatever tokenizer.json is, with its special tokens by name."""
    ids = {"unk_token": vocab.unk, "cls_token": vocab.cls, "sep_token": vocab.sep, "mask_token": vocab.mask}
    ids |= {"pad_token": vocab.pad, "bos_token": vocab.cls, "eos_token": vocab.sep}
    columns = ["input_ids", *(["token_type_ids"] if trunk.segments > 1 else []), "attention_mask"]
    return {name: vocab.piece(id) for name, id in ids.items() if id is not None} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": trunk.longest,
        "model_input_names": columns,
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give a folder with exported weights") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_read(path))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error}); export again") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: holds no JSON object; export again")
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomic(path, (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())
