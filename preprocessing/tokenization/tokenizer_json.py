"""Read a tokenizer.json of the library `tokenizers`, with its own tokens, normalizer and pre-tokenizer.

The files tokenizer_config.json and special_tokens_map.json beside it define the roles of special tokens. Roles that
they do not define follow from the usual names. Truncation, padding and dropout are removed, because a corpus must
contain whole texts with reproducible IDs.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from preprocessing.errors import BadInput
from preprocessing.files import parse_json
from preprocessing.tokenization.part import Scheme, TokenizerBuild, TokenizerPart

NAME: Final = "tokenizer.json"
_SETTINGS: Final = ("tokenizer_config.json", "special_tokens_map.json")
_KEYS: Final = {  # keys of these files by role; the first that exists counts
    "sep": ("sep_token", "eos_token", "bos_token"),
    "cls": ("cls_token", "bos_token"),
    "mask": ("mask_token",),
    "pad": ("pad_token",),
    "unk": ("unk_token",),
}
_TEXT: Final = ("normalizer", "pre_tokenizer")  # steps before the model
_USUAL: Final = {
    "sep": ("[SEP]", "<sep>", "</s>", "<|endoftext|>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
    "pad": ("[PAD]", "<pad>", "<|pad|>"),
    "unk": ("[UNK]", "<unk>"),
}


def find(path: Path) -> Path | None:
    """Return the tokenizer.json at this path or in this directory; None if the path is another kind of file."""
    if path.is_dir():
        return path / NAME if (path / NAME).is_file() else None
    return path if path.suffix == ".json" else None


def inside(path: Path, *names: str) -> Path:
    """Return the first of these files in a directory, or `path` itself if it is a file.

    Raises BadInput if none exists.
    """
    if not path.is_dir():
        return path
    file = next((path / name for name in names if (path / name).is_file()), None)
    if file is None:
        missing = " and no ".join(dict.fromkeys((NAME, *names)))
        raise BadInput(
            f"tokenizer.path: {path}: no {missing} in this directory; set data.tokenizer.path to another path"
        )
    return file


class OtherScheme(BadInput):
    """A tokenizer.json does not have the scheme of the requested kind. The message states that no kind supports it."""

    def __init__(self, path: Path, scheme: Scheme) -> None:
        self.path, self.scheme = path, scheme
        super().__init__(
            f"tokenizer.path: {path}: unsupported tokenizer: got {scheme.model} with {scheme.marks}; use a WordPiece, "
            "byte-level BPE, Unigram or Metaspace BPE tokenizer"
        )


def read(path: Path, kind: TokenizerPart) -> TokenizerBuild:
    """Read a file that `find` returned. Raises OtherScheme if it is of another kind."""
    about = parse_json(path.read_bytes())
    if not kind.reads(scheme(about)):
        raise OtherScheme(path, scheme(about))
    try:
        tokenizer = Tokenizer.from_str(json.dumps(about))
    except Exception as error:  # the library raises no narrower exception
        raise ValueError(str(error)) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None) is not None:
        tokenizer.model.dropout = None
    names = _roles(tokenizer, about, path)
    added = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    for name in names.values():  # otherwise the name in a text would be encoded as this token
        if name not in added or not added[name].special:
            tokenizer.add_special_tokens([name])
    return TokenizerBuild(names, {NAME: tokenizer.to_str().encode()}, complete=True)


def scheme(about: Mapping[str, Any]) -> Scheme:
    """Return the scheme of a tokenizer.json.

    >>> scheme({"model": {"type": "BPE"}, "pre_tokenizer": {"type": "ByteLevel"}}).is_of_bytes
    True
    """
    model, steps = about["model"], [step for key in _TEXT for step in _steps(about.get(key))]
    return Scheme(
        model=model["type"],
        is_of_bytes=any(step["type"] == "ByteLevel" for step in steps),
        marks_spaces=any(
            "\u2581" in (step.get("replacement"), step.get("content"), step.get("prepend")) for step in steps
        ),
        inside=model.get("continuing_subword_prefix"),
        at_end=model.get("end_of_word_suffix"),
    )


def lowers_case(tokenizer_json: bytes) -> bool:
    """Return whether the normalizer of a tokenizer.json converts text to lower case."""
    normalizer = Tokenizer.from_buffer(tokenizer_json).normalizer
    return normalizer is not None and normalizer.normalize_str("aAb").strip("\u2581 ") == "aab"


def require_case(build: TokenizerBuild, file: str, lowercase: bool) -> TokenizerBuild:
    """Return `build`. Raises BadInput unless it agrees with the key `lowercase`."""
    lowers = lowers_case(build.files[NAME])
    if lowers != lowercase:
        raise BadInput(
            f"tokenizer.lowercase: invalid value {str(lowercase).lower()}, expected {str(lowers).lower()} for {file}; "
            f"set data.tokenizer.lowercase={str(lowers).lower()}"
        )
    return build


def _steps(part: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a normalizer or pre-tokenizer, including the steps of a sequence."""
    if part:
        yield part
        for inner in (*part.get("normalizers", ()), *part.get("pretokenizers", ())):
            yield from _steps(inner)


def _roles(tokenizer: Tokenizer, about: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return role -> token. Each token has one role: `sep` precedes `pad` and `unk`."""
    token_of, ids = _token_settings(path, about), tokenizer.get_vocab()
    if missing := next((f"{key} {token}" for key, token in token_of.items() if token not in ids), ""):
        raise BadInput(
            f"tokenizer.path: {path}: the vocabulary does not contain {missing}; add the token, or correct "
            f"{' or '.join(_SETTINGS)} in the same directory"
        )
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    roles: dict[str, str] = {}
    for role, keys in _KEYS.items():
        configured = next((token_of[key] for key in keys if key in token_of), "")
        token = configured or next((name for name in _USUAL[role] if name in special), "")
        if token and token not in roles.values():
            roles[role] = token
    return roles


def _token_settings(path: Path, about: Mapping[str, Any]) -> dict[str, str]:
    """Return key -> token from the settings files, and the unknown token of the model if they do not define it."""
    token_of: dict[str, str] = {}
    for name in _SETTINGS:
        file = path.with_name(name)
        settings = parse_json(file.read_bytes()) if file.is_file() else {}
        for key in {key for keys in _KEYS.values() for key in keys} & settings.keys() - token_of.keys():
            value = settings[key]
            token = value["content"] if isinstance(value, dict) else value
            if token:
                token_of[key] = str(token)
    model = about["model"]
    if "unk_token" not in token_of and model.get("unk_token"):
        token_of["unk_token"] = model["unk_token"]
    if "unk_token" not in token_of and model.get("unk_id") is not None:
        token_of["unk_token"] = model["vocab"][model["unk_id"]][0]
    return token_of
