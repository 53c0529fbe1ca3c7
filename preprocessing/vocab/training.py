"""Train the vocabulary that a recipe asks for, or load the file that it names."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from tokenizers import Tokenizer

from preprocessing.errors import BadInput
from preprocessing.files import checked_json
from preprocessing.vocab import byte_bpe, word_level, wordpiece
from preprocessing.vocab import sentencepiece as unigram
from preprocessing.vocab.specs import ByteBPE, SentencePieceBPE, SingleBytes, Unigram, VocabSpec, WholeWords, WordPiece
from preprocessing.vocab.vocab import _ABOUT, _ROLES, Vocab, _sha256

T = TypeVar("T")


def train(spec: VocabSpec, texts: Iterable[str]) -> Vocab:
    """Train the vocabulary that `spec` asks for on whole documents, or load `spec.file` where it names one.

    The same texts give the same bytes in any process and on any number of cores. All but those of sentencepiece may
    end with fewer pieces than asked for. BadInput where the texts or the file cannot give such a vocabulary.
    """
    names: dict[str, str]
    match spec:
        case WordPiece(lowercase=lowercase, file=file):
            ids = _read(file, wordpiece.read) if file else _wordpiece(spec, list(texts))
            names, files = wordpiece.SPECIALS, wordpiece.files(ids, lowercase)
        case ByteBPE(size=size, specials=layout, file=file):
            pieces = _read(file, byte_bpe.read, size, layout) if file else byte_bpe.train(texts, size, layout)
            names, files = byte_bpe.SPECIALS[layout], byte_bpe.files(pieces, layout)
        case Unigram(size=size, file=file) | SentencePieceBPE(size=size, file=file):
            model: unigram.Model = "unigram" if isinstance(spec, Unigram) else "bpe"
            room, lower = size - spec.sentinels, spec.lowercase
            content = _read(file, unigram.read, model, lower) if file else unigram.train(texts, room, model, lower)
            files = unigram.files(content, spec.sentinels)
            names = unigram.specials(Tokenizer.from_buffer(files["tokenizer.json"]))
        case WholeWords(size=size, file=file) | SingleBytes(size=size, file=file):
            ids = _read(file, word_level.read) if file else word_level.train(texts, size, spec.kind)
            names, files = word_level.SPECIALS, word_level.files(ids, spec.kind)
    vocab = _assemble(spec, names, files)
    fits(vocab, spec)
    return vocab


def _wordpiece(spec: WordPiece, texts: list[str]) -> dict[str, int]:
    ids = wordpiece.train(texts, spec.size, spec.lowercase)
    return wordpiece.by_frequency(ids, texts, spec.lowercase) if spec.order == "frequency" else ids


def fits(vocab: Vocab, spec: VocabSpec) -> None:
    """BadInput unless `vocab` is of the kind that `spec` asks for and has no more pieces than it asks for."""
    if vocab.kind != spec.kind:
        raise BadInput(
            f"vocab.kind is {spec.kind}, the vocabulary given is {vocab.kind}; change the kind or the corpus"
        )
    if vocab.size > spec.size:
        raise BadInput(f"vocab.size is {spec.size}, the vocabulary given has {vocab.size} pieces; ask for as many")


def _assemble(spec: VocabSpec, names: dict[str, str], files: dict[str, bytes]) -> Vocab:
    """The vocabulary of these files, with `names` (role -> piece) as its special tokens."""
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    ids = tokenizer.get_vocab()
    given = tokenizer.get_vocab_size(with_added_tokens=False)
    if missing := [name for name in names.values() if ids[name] >= given]:
        raise BadInput(f"vocab.file: {spec.file}: has no {', '.join(missing)}; name a file that has")
    if sorted(ids.values()) != list(range(len(ids))):
        raise BadInput(f"vocab.file: {spec.file}: has a piece twice, or leaves out an id; name another file")
    about = {
        "kind": spec.kind,
        "size": len(ids),
        **{role: ids[names[role]] if role in names else None for role in _ROLES},
        **({"sentinels": spec.sentinels} if isinstance(spec, Unigram | SentencePieceBPE) and spec.sentinels else {}),
        "sha256": {name: _sha256(content) for name, content in sorted(files.items())},
    }
    return Vocab._from_files(files | {_ABOUT: checked_json(about)})


def _read(file: str, read: Callable[..., T], *settings: object) -> T:
    """What `read` makes of a user's file; whatever it stumbles over is BadInput."""
    try:
        return read(Path(file), *settings)
    except BadInput:
        raise
    except OSError as error:
        raise BadInput(f"vocab.file: {error.filename}: {error.strerror}; name a vocabulary that exists") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise BadInput(
            f"vocab.file: {file}: cannot be read as this kind of vocabulary; change the kind or the file"
        ) from None
