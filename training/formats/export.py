"""Export of weights to directories that `transformers` loads.

They contain safetensors and JSON only, so no file is unpickled. The JSON file that makes a directory valid is
written last. The tied embedding table is stored once. Weights have our names, as in `Model.named_parameters()`;
parameters shared by several layers are stored once.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.sampling import ExampleSpec
from preprocessing.tokenization import Vocab, with_open_sentinels
from training.formats import sharded
from training.formats.classes import choose_format, exportable_part, missing_heads, without_heads
from training.formats.format import Format
from training.formats.spec_file import write_json
from training.formats.weights import Weights
from training.model_spec import ModelSpec
from training.specs import Architecture

OUTPUT: Final = "trunk.output."
NO_KEYS: Final[Mapping[str, Any]] = MappingProxyType({})


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
    exportable = exportable_part(spec)
    format, architecture = choose_format(exportable, vocab.pad)
    left_out = tuple(f"heads.{name}." for name in missing_heads(spec, format, architecture))
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
    format: Format, state: Weights, names_to_export: Iterable[str], spec: ModelSpec, pooler: str = ""
) -> Iterator[tuple[str, Tensor]]:
    """Yield the named tensors in the format of transformers, and a pooler if it is missing.

    One layer is converted at a time.
    """
    groups: dict[str, list[str]] = {}
    for name in names_to_export:
        match = re.match(r".*?\.\d+\.", name)
        groups.setdefault(match[0] if match else "", []).append(name)
    names = set[str]()
    for group in groups.values():
        tensors = format.theirs({name: state[name] for name in group}, spec)
        names |= tensors.keys()
        while tensors:  # frees each tensor as soon as it is written
            name = next(iter(tensors))
            yield name, tensors.pop(name)
    yield from format.constants(spec).items()
    yield from _pooler(pooler, names, spec.model).items()


def _is_of_trunk(name: str) -> bool:
    """Whether a tensor is in the classes without heads: not the output table, but the pooler of sentence pairs."""
    return not name.startswith(("heads.", OUTPUT)) or name.startswith("heads.pair_label.pooler.")


def _pooler(name: str, tensors: Collection[str], trunk: Architecture) -> dict[str, Tensor]:
    """A pooler with the initialization of transformers, if the class has one and the tensors do not."""
    if not name or f"{name}.weight" in tensors:
        return {}
    weight = torch.empty(trunk.hidden_size, trunk.hidden_size)
    weight.normal_(0, trunk.init_std, generator=torch.Generator().manual_seed(0))
    return {f"{name}.weight": weight, f"{name}.bias": torch.zeros(trunk.hidden_size)}


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
