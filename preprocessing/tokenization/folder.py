"""Load a tokenizer from a directory of `transformers` or of a Sesame export, with the same token IDs.

If a setting is missing, the error states what to add: whether vocab.txt is lower-cased, or how many sentinel tokens a
T5 model has. One difference from transformers: the name of a special token in a text is ordinary text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer, normalizers, processors

from preprocessing.errors import BadInput
from preprocessing.files import parse_json
from preprocessing.tokenization import tokenizer_json
from preprocessing.tokenization.byte_level_bpe import SPECIALS, ByteLevelBPE
from preprocessing.tokenization.end_of_word_bpe import END
from preprocessing.tokenization.frame import with_closed_sentinels
from preprocessing.tokenization.part import from_file
from preprocessing.tokenization.sentencepiece import Unigram
from preprocessing.tokenization.specs import KINDS
from preprocessing.tokenization.training import vocab_from_file
from preprocessing.tokenization.vocab import ROLES, Vocab
from preprocessing.tokenization.wordpiece import WordPiece

_ANY: Final = 1 << 30  # no limit of vocab_size
_SETTINGS: Final = "tokenizer_config.json"
_SENTINEL: Final = "<extra_id_"
_SAVE: Final = "save the tokenizer there with tokenizer.save_pretrained of transformers 5"
# The settings of BERT's own code, which apply to vocab.txt.
_BERT_SETTINGS: Final = {"tokenize_chinese_chars": True, "strip_accents": None}


def of_folder(folder: Path | str) -> Vocab:
    """Load the tokenizer of a directory, from the first of these files that exists.

    The order is: Sesame's own files, tokenizer.json, vocab.txt, spiece.model (T5, ALBERT, XLNet), vocab.json with
    merges.txt. Raises BadInput if none exists, if the kind is not supported, or if a required setting is missing.
    """
    folder = Path(folder)
    if (folder / "specials.json").is_file():
        return with_closed_sentinels(Vocab.load(folder))
    settings = from_file(str(folder), lambda path: _json(path / _SETTINGS) | {"config": _json(path / "config.json")})
    if (folder / tokenizer_json.NAME).is_file():
        return _from_tokenizer_json(folder, settings)
    if (folder / "vocab.txt").is_file():
        return vocab_from_file(
            WordPiece(vocab_size=_ANY, lowercase=_lowercase(folder, settings), path=str(folder / "vocab.txt"))
        )
    if (folder / "spiece.model").is_file():
        return _from_sentencepiece(folder, settings)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _from_merges(folder, settings)
    names = "tokenizer.json, vocab.txt, spiece.model or vocab.json with merges.txt"
    raise BadInput(f"{folder}: no tokenizer found, expected {names}; {_SAVE}")


def _json(path: Path) -> dict[str, Any]:
    return parse_json(path.read_bytes()) if path.is_file() else {}


def _from_tokenizer_json(folder: Path, settings: Mapping[str, Any]) -> Vocab:
    """Load a tokenizer.json as the kind of tokenizer that supports its scheme."""
    file = folder / tokenizer_json.NAME
    about = from_file(str(file), lambda path: parse_json(path.read_bytes()))
    scheme = from_file(str(file), lambda path: tokenizer_json.scheme(about))
    kind = next((kind for kind in KINDS.values() if kind.reads(scheme)), None)
    if kind is None:
        raise tokenizer_json.OtherScheme(file, scheme)
    lowers, setting = tokenizer_json.lowers_case(file.read_bytes()), settings.get("do_lower_case")
    if kind is WordPiece and setting not in (None, lowers):
        raise BadInput(
            f"{file.with_name(_SETTINGS)}: invalid do_lower_case: got {str(setting).lower()}, expected "
            f"{str(lowers).lower()} as in {file.name}; correct the value"
        )
    tokens = from_file(str(file), lambda path: Tokenizer.from_file(str(path)).get_vocab())
    return vocab_from_file(
        _spec(kind, file, lowercase=lowers, extra_ids=sum(name.startswith(_SENTINEL) for name in tokens))
    )


def _spec(kind: type[Any], file: Path, **values: object) -> Any:
    """Return a spec of this kind for a file, with those values for which the kind has a key."""
    keys = {field.name for field in fields(kind)}
    return kind(vocab_size=_ANY, path=str(file), **{name: value for name, value in values.items() if name in keys})


def _lowercase(folder: Path, settings: Mapping[str, Any]) -> bool:
    """Return whether vocab.txt is lower-cased, from the settings.

    A default would be wrong for cased files: transformers assumes lower case.
    """
    lowercase = settings.get("do_lower_case")
    if not isinstance(lowercase, bool):
        raise BadInput(
            f"{folder}: do_lower_case is missing, but vocab.txt requires it; add "
            f'{{"do_lower_case": true}} or false to {_SETTINGS} there'
        )
    for key, usual in _BERT_SETTINGS.items():
        if settings.get(key, usual) != usual:
            raise BadInput(
                f"{folder / _SETTINGS}: invalid {key}: got {settings[key]}, expected {usual} with vocab.txt; {_SAVE}"
            )
    return lowercase


def _from_sentencepiece(folder: Path, settings: Mapping[str, Any]) -> Vocab:
    """Load a sentencepiece model with the normalization and special tokens of its model type."""
    file, model_type = folder / "spiece.model", _model_type(settings)
    if model_type == "t5":
        if not isinstance(settings.get("extra_ids"), int):
            raise BadInput(
                f"{folder}: extra_ids is missing, but spiece.model of t5 requires it; add "
                f'{{"extra_ids": 100}}, or the actual number, to {_SETTINGS} there'
            )
        return vocab_from_file(Unigram(vocab_size=_ANY, extra_ids=settings["extra_ids"], path=str(file)))
    if model_type not in ("albert", "xlnet"):
        raise BadInput(
            f"{folder / 'config.json'}: invalid model_type: got {model_type or 'none'}, expected t5, albert or xlnet "
            f"with spiece.model; {_SAVE}"
        )
    if not isinstance(settings.get("do_lower_case"), bool):
        raise BadInput(
            f"{folder}: do_lower_case is missing, but spiece.model of {model_type} requires it; add "
            f'{{"do_lower_case": true}} or false to {_SETTINGS} there'
        )
    plain = vocab_from_file(Unigram(vocab_size=_ANY, path=str(file)))
    tokenizer = Tokenizer.from_buffer(plain.files[tokenizer_json.NAME])
    keeps = model_type == "albert" and settings.get("keep_accents", False)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        + ([] if keeps else [normalizers.NFKD(), normalizers.StripAccents()])
        + ([normalizers.Lowercase()] if settings["do_lower_case"] else [])
        + [tokenizer.normalizer]
    )
    if model_type == "xlnet":
        sep, cls = (plain.piece(id) for id in (plain.sep, plain.cls) if id is not None)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=["$A", sep, f"{cls}:2"],
            pair=["$A", sep, "$B:1", f"{sep}:1", f"{cls}:2"],
            special_tokens=[(sep, plain.sep), (cls, plain.cls)],
        )
    files = {tokenizer_json.NAME: tokenizer.to_str().encode()}
    return Vocab.of(plain.kind, plain.size, {role: getattr(plain, role) for role in ROLES}, 0, files)


def _model_type(settings: Mapping[str, Any]) -> str:
    """Return the model type in config.json, or that of the tokenizer class: "albert" for AlbertTokenizerFast."""
    model_type = settings["config"].get("model_type")
    return model_type or settings.get("tokenizer_class", "").removesuffix("Fast").removesuffix("Tokenizer").lower()


def _from_merges(folder: Path, settings: Mapping[str, Any]) -> Vocab:
    """Load vocab.json with merges.txt: of GPT-2, or of RoBERTa and BART if there is a mask token."""
    tokens: Sequence[str] = from_file(str(folder), lambda path: list(_json(path / "vocab.json")))
    if any(token.endswith(END) for token in tokens):
        raise BadInput(
            f"{folder / 'vocab.json'}: the suffix {END} (OpenAI GPT, XLM) requires a tokenizer.json;  {_SAVE}"
        )
    if settings.get("add_prefix_space"):
        raise BadInput(
            f"{folder / _SETTINGS}: invalid add_prefix_space: got {settings['add_prefix_space']}, expected false with "
            f"vocab.json and merges.txt; {_SAVE}"
        )
    layout = "roberta" if SPECIALS["roberta"]["mask"] in tokens else "gpt2"
    return vocab_from_file(ByteLevelBPE(vocab_size=_ANY, special_tokens=layout, path=str(folder)))  # type: ignore[arg-type]  # one of the two
