"""A tokenizer.json of `tokenizers` as it is: its pieces, normaliser, pre-tokeniser and special tokens decide.

What is beside it (tokenizer_config.json, special_tokens_map.json) says which token has which role; where neither does,
the usual names do. Truncation, padding and dropout are taken out: a corpus has all of a text, and always the same ids.
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
_KEYS: Final = {  # of these files, for each role; the first that is there
    "sep": ("sep_token", "eos_token", "bos_token"),
    "cls": ("cls_token", "bos_token"),
    "mask": ("mask_token",),
    "pad": ("pad_token",),
    "unk": ("unk_token",),
}
_TEXT: Final = ("normalizer", "pre_tokenizer")  # what a text goes through before its words are cut
_USUAL: Final = {
    "sep": ("[SEP]", "<sep>", "</s>", "<|endoftext|>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
    "pad": ("[PAD]", "<pad>", "<|pad|>"),
    "unk": ("[UNK]", "<unk>"),
}


def find(path: Path) -> Path | None:
    """The tokenizer.json that a path names, itself or as its folder; None: it names another kind of file."""
    if path.is_dir():
        return path / NAME if (path / NAME).is_file() else None
    return path if path.suffix == ".json" else None


def inside(path: Path, *names: str) -> Path:
    """The first of these files in a folder, or the path itself where it is none. BadInput where no file is there."""
    if not path.is_dir():
        return path
    found = next((path / name for name in names if (path / name).is_file()), None)
    if found is None:
        wanted = " and no ".join(dict.fromkeys((NAME, *names)))
        raise BadInput(f"tokenizer.path: {path}: has no {wanted}; name another folder or a file")
    return found


class OtherScheme(BadInput):
    """A tokenizer.json is of another kind than the one that was to read it; as it stands here, of none."""

    def __init__(self, path: Path, scheme: Scheme) -> None:
        self.path, self.scheme = path, scheme
        super().__init__(
            f"tokenizer.path: {path}: is {scheme.model} with {scheme.marks}, of which no kind of Sesame tells where "
            "words begin; name a WordPiece, byte-level BPE, Unigram or Metaspace BPE vocabulary"
        )


def read(path: Path, kind: TokenizerPart) -> TokenizerBuild:
    """The vocabulary of a file that `find` has found. OtherScheme where it is not of this kind."""
    about = parse_json(path.read_bytes())
    if not kind.reads(scheme(about)):
        raise OtherScheme(path, scheme(about))
    try:
        tokenizer = Tokenizer.from_str(json.dumps(about))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(str(error)) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None) is not None:
        tokenizer.model.dropout = None
    names = _roles(tokenizer, about, path)
    added = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    for name in names.values():  # one that is not marked as special would be read out of a text
        if name not in added or not added[name].special:
            tokenizer.add_special_tokens([name])
    return TokenizerBuild(names, {NAME: tokenizer.to_str().encode()}, complete=True)


def scheme(about: Mapping[str, Any]) -> Scheme:
    """What a tokenizer.json says of its model and of its words.

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
    """Whether the normaliser of a tokenizer.json turns capitals into small letters."""
    normalizer = Tokenizer.from_buffer(tokenizer_json).normalizer
    return normalizer is not None and normalizer.normalize_str("aAb").strip("\u2581 ") == "aab"


def require_case(made: TokenizerBuild, file: str, lowercase: bool) -> TokenizerBuild:
    """The same; BadInput unless its file does to case what the recipe says."""
    lowers = lowers_case(made.files[NAME])
    if lowers != lowercase:
        raise BadInput(
            f"tokenizer.path: {file}: {'lower-cases' if lowers else 'keeps the case of'} text, tokenizer.lowercase is "
            f"{str(lowercase).lower()}; write data.tokenizer.lowercase={str(lowers).lower()}"
        )
    return made


def _steps(part: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The steps of a normaliser or pre-tokeniser, those of a sequence one by one."""
    if part:
        yield part
        for inner in (*part.get("normalizers", ()), *part.get("pretokenizers", ())):
            yield from _steps(inner)


def _roles(tokenizer: Tokenizer, about: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Role -> token. A token has one role: where the end of text is also padding or the unknown, it is that end."""
    said, ids = _said(path, about), tokenizer.get_vocab()
    if missing := next((f"{key} {token}" for key, token in said.items() if token not in ids), ""):
        raise BadInput(
            f"tokenizer.path: {path}: has no piece for {missing}; add it there, or correct the files beside it"
        )
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    found: dict[str, str] = {}
    for role, keys in _KEYS.items():
        named = next((said[key] for key in keys if key in said), "")
        token = named or next((name for name in _USUAL[role] if name in special), "")
        if token and token not in found.values():
            found[role] = token
    return found


def _said(path: Path, about: Mapping[str, Any]) -> dict[str, str]:
    """Key -> token, as the files beside a tokenizer.json say it, and the unknown token as its model does."""
    said: dict[str, str] = {}
    for name in _SETTINGS:
        file = path.with_name(name)
        settings = parse_json(file.read_bytes()) if file.is_file() else {}
        for key in {key for keys in _KEYS.values() for key in keys} & settings.keys() - said.keys():
            value = settings[key]
            token = value["content"] if isinstance(value, dict) else value
            if token:
                said[key] = str(token)
    model = about["model"]
    if "unk_token" not in said and model.get("unk_token"):
        said["unk_token"] = model["unk_token"]
    if "unk_token" not in said and model.get("unk_id") is not None:
        said["unk_token"] = model["vocab"][model["unk_id"]][0]
    return said
