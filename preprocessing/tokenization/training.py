"""Train the tokenizer of a recipe, or load it from a file."""

from collections.abc import Iterable
from typing import get_args

from tokenizers import Tokenizer

from preprocessing.errors import BadInput
from preprocessing.spec import kind_of
from preprocessing.tokenization.part import TokenizerBuild
from preprocessing.tokenization.specs import TokenizerSpec
from preprocessing.tokenization.tokenizer_json import OtherScheme
from preprocessing.tokenization.vocab import ROLES, Vocab


def train(spec: TokenizerSpec, texts: Iterable[str]) -> Vocab:
    """Train a tokenizer on whole documents, or load it if `spec.path` is set.

    The same texts give the same bytes in any process and on any number of cores. Except with sentencepiece, the result
    may have fewer tokens than `spec.vocab_size`. Raises BadInput if the texts or the file do not suit `spec`.
    """
    vocab = _assemble(spec, _build(spec, texts))
    check_vocab(vocab, spec)
    return vocab


def _build(spec: TokenizerSpec, texts: Iterable[str]) -> TokenizerBuild:
    """Return spec.make(texts); if the file is of another kind, the error names this kind."""
    try:
        return spec.make(texts)
    except OtherScheme as other:
        kind = next((kind_of(member) for member in get_args(TokenizerSpec) if member.reads(other.scheme)), "")
        mismatch = (
            f"tokenizer.kind: invalid value {spec.kind}, expected {kind} for {other.path}; set "
            f"data.tokenizer.kind={kind}, or change data.tokenizer.path"
        )
        raise BadInput(mismatch if kind else str(other)) from None


def vocab_from_file(spec: TokenizerSpec) -> Vocab:
    """Load the tokenizer at `spec.path`. Raises BadInput as `train` does, but needs no text."""
    return train(spec, ())


def check_vocab(vocab: Vocab, spec: TokenizerSpec) -> None:
    """Raise BadInput unless `vocab` has the kind of `spec` and at most `spec.vocab_size` tokens."""
    if vocab.kind != spec.kind:
        raise BadInput(
            f"tokenizer.kind: invalid value {spec.kind}, expected {vocab.kind} as in the given tokenizer; change "
            "data.tokenizer.kind or the corpus"
        )
    if vocab.size > spec.vocab_size:
        raise BadInput(
            f"tokenizer.vocab_size: invalid value {spec.vocab_size}, expected at least {vocab.size} as in the given "
            f"tokenizer; set data.tokenizer.vocab_size={vocab.size}"
        )


def _assemble(spec: TokenizerSpec, build: TokenizerBuild) -> Vocab:
    """Return the tokenizer with these files and special tokens."""
    tokenizer = Tokenizer.from_buffer(build.files["tokenizer.json"])
    ids = tokenizer.get_vocab()
    num_in_model = tokenizer.get_vocab_size(with_added_tokens=False)
    if missing := [name for name in build.names.values() if ids[name] >= num_in_model and not build.complete]:
        names = ", ".join(missing)
        raise BadInput(f"tokenizer.path: {spec.path}: the vocabulary has no {names}; add these tokens to the file")
    if sorted(ids.values()) != list(range(len(ids))):
        raise BadInput(
            f"tokenizer.path: {spec.path}: the vocabulary has a duplicate token or a missing ID; change "
            "data.tokenizer.path"
        )
    special = {role: ids[build.names[role]] if role in build.names else None for role in ROLES}
    vocab = Vocab.of(spec.kind, len(ids), special, spec.extra_ids, build.files)
    if vocab.unk is None and vocab.words_that_are_special:
        names = ", ".join(vocab.piece(id) for id in sorted(vocab.words_that_are_special))
        raise BadInput(
            f"tokenizer.path: {spec.path}: the text {names} would be encoded as a special token; change "
            "data.tokenizer.path"
        )
    return vocab
