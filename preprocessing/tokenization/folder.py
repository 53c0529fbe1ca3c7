"""The vocabulary of a folder of `transformers`, or of one that Sesame exported: ids as the tokenizer there gives them.

What a folder does not say is refused, with what to write: whether a vocab.txt is lower-cased, how many sentinels a
sentencepiece model of T5 has. Written-out special tokens are text here, where transformers takes them for the tokens.
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

_ANY: Final = 1 << 30  # as many pieces as there are
_SETTINGS: Final = "tokenizer_config.json"
_SENTINEL: Final = "<extra_id_"
_SAVE: Final = "save it there with tokenizer.save_pretrained of transformers 5"
_AS_WRITTEN: Final = {
    "tokenize_chinese_chars": True,
    "strip_accents": None,
}  # of a vocab.txt: what BERT's own code does


def of_folder(folder: Path | str) -> Vocab:
    """The vocabulary of a folder: our own files, else tokenizer.json, vocab.txt, spiece.model of T5, ALBERT or XLNet,
    or vocab.json with merges.txt; the first that is there.

    BadInput, in one line, where there is none of them, or it is of no kind that we read, or does not say enough.
    """
    folder = Path(folder)
    if (folder / "specials.json").is_file():
        return with_closed_sentinels(Vocab.load(folder))
    settings = from_file(str(folder), lambda path: _json(path / _SETTINGS) | {"config": _json(path / "config.json")})
    if (folder / tokenizer_json.NAME).is_file():
        return _of_json(folder, settings)
    if (folder / "vocab.txt").is_file():
        return vocab_from_file(
            WordPiece(vocab_size=_ANY, lowercase=_lowercase(folder, settings), path=str(folder / "vocab.txt"))
        )
    if (folder / "spiece.model").is_file():
        return _of_spiece(folder, settings)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _of_merges(folder, settings)
    wanted = "tokenizer.json, vocab.txt, spiece.model, vocab.json with merges.txt"
    raise BadInput(f"{folder}: has no tokenizer (none of {wanted}); {_SAVE}")


def _json(path: Path) -> dict[str, Any]:
    return parse_json(path.read_bytes()) if path.is_file() else {}


def _of_json(folder: Path, settings: Mapping[str, Any]) -> Vocab:
    """The vocabulary of a tokenizer.json, of the kind whose pieces these are."""
    file = folder / tokenizer_json.NAME
    about = from_file(str(file), lambda path: parse_json(path.read_bytes()))
    scheme = from_file(str(file), lambda path: tokenizer_json.scheme(about))
    kind = next((kind for kind in KINDS.values() if kind.reads(scheme)), None)
    if kind is None:
        raise tokenizer_json.OtherScheme(file, scheme)
    lowers, said = tokenizer_json.lowers_case(file.read_bytes()), settings.get("do_lower_case")
    if kind is WordPiece and said not in (None, lowers):
        does = "lower-cases" if lowers else "keeps case"
        raise BadInput(f"{file}: {does}, {_SETTINGS} says do_lower_case {str(said).lower()}; make the two agree")
    pieces = from_file(str(file), lambda path: Tokenizer.from_file(str(path)).get_vocab())
    return vocab_from_file(
        _spec(kind, file, lowercase=lowers, extra_ids=sum(name.startswith(_SENTINEL) for name in pieces))
    )


def _spec(kind: type[Any], file: Path, **facts: object) -> Any:
    """The part of a kind for a file; of the facts it takes those that it has a key for."""
    keys = {field.name for field in fields(kind)}
    return kind(vocab_size=_ANY, path=str(file), **{name: fact for name, fact in facts.items() if name in keys})


def _lowercase(folder: Path, settings: Mapping[str, Any]) -> bool:
    """Whether a vocab.txt is lower-cased: transformers would guess that it is, and read a cased one wrongly."""
    said = settings.get("do_lower_case")
    if not isinstance(said, bool):
        raise BadInput(
            f"{folder}: vocab.txt alone does not say whether text is lower-cased; write "
            f'{{"do_lower_case": true}} or false into {_SETTINGS} there'
        )
    for key, usual in _AS_WRITTEN.items():
        if settings.get(key, usual) != usual:
            raise BadInput(f"{folder}: {_SETTINGS} says {key} {settings[key]}, which vocab.txt has not here; {_SAVE}")
    return said


def _of_spiece(folder: Path, settings: Mapping[str, Any]) -> Vocab:
    """The vocabulary of a sentencepiece model, with what the tokenizer of its model type does before and around it."""
    file, model_type = folder / "spiece.model", _model_type(settings)
    if model_type == "t5":
        if not isinstance(settings.get("extra_ids"), int):
            raise BadInput(f'{folder}: write {{"extra_ids": 100}}, or as many as it has, into {_SETTINGS} there')
        return vocab_from_file(Unigram(vocab_size=_ANY, extra_ids=settings["extra_ids"], path=str(file)))
    if model_type not in ("albert", "xlnet"):
        found = model_type or "nothing, in config.json and tokenizer_config.json"
        raise BadInput(
            f"{file}: is of model type {found}; alone it is read for t5, albert and xlnet, whose ids are the model's; "
            f"{_SAVE}"
        )
    if not isinstance(settings.get("do_lower_case"), bool):
        raise BadInput(f'{folder}: write {{"do_lower_case": true}} or false into {_SETTINGS} there')
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
    """The model type that config.json says, or the class of the tokenizer: "albert" of AlbertTokenizerFast."""
    said = settings["config"].get("model_type")
    return said or settings.get("tokenizer_class", "").removesuffix("Fast").removesuffix("Tokenizer").lower()


def _of_merges(folder: Path, settings: Mapping[str, Any]) -> Vocab:
    """The vocabulary of a vocab.json with merges.txt: GPT-2's, or that of RoBERTa and BART, which has a mask."""
    pieces: Sequence[str] = from_file(str(folder), lambda path: list(_json(path / "vocab.json")))
    if any(piece.endswith(END) for piece in pieces):
        raise BadInput(
            f"{folder / 'vocab.json'}: its pieces end with {END} at the end of words (OpenAI GPT, XLM), and nothing "
            f"says what is done to text before; {_SAVE}"
        )
    if settings.get("add_prefix_space"):
        raise BadInput(f"{folder}: {_SETTINGS} says add_prefix_space, which these two files have not; {_SAVE}")
    layout = "roberta" if SPECIALS["roberta"]["mask"] in pieces else "gpt2"
    return vocab_from_file(ByteLevelBPE(vocab_size=_ANY, special_tokens=layout, path=str(folder)))  # type: ignore[arg-type]  # one of the two
