"""Train the vocabulary that a recipe asks for, or load the file that it names."""

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
    """Train the vocabulary that `spec` asks for on whole documents, or load `spec.file` where it names one.

    The same texts give the same bytes in any process and on any number of cores. All but those of sentencepiece may
    end with fewer pieces than asked for. BadInput where the texts or the file cannot give such a vocabulary.
    """
    vocab = _assemble(spec, _made(spec, texts))
    check_vocab(vocab, spec)
    return vocab


def _made(spec: TokenizerSpec, texts: Iterable[str]) -> TokenizerBuild:
    """What the kind makes; where its file is of another kind, the error names that one."""
    try:
        return spec.make(texts)
    except OtherScheme as other:
        found = next((kind_of(kind) for kind in get_args(TokenizerSpec) if kind.reads(other.scheme)), "")
        mismatch = (
            f"tokenizer.path: {other.path}: is {other.scheme.model} of kind {found}, tokenizer.kind is {spec.kind}; "
            f"write data.tokenizer.kind={found}, or name another file"
        )
        raise BadInput(mismatch if found else str(other)) from None


def vocab_from_file(spec: TokenizerSpec) -> Vocab:
    """The vocabulary in `spec.file`. BadInput as `train` has it, so that it can be asked before there is any text."""
    return train(spec, ())


def check_vocab(vocab: Vocab, spec: TokenizerSpec) -> None:
    """BadInput unless `vocab` is of the kind that `spec` asks for and has no more pieces than it asks for."""
    if vocab.kind != spec.kind:
        raise BadInput(
            f"tokenizer.kind is {spec.kind}, the vocabulary given is {vocab.kind}; change the kind or the corpus"
        )
    if vocab.size > spec.vocab_size:
        raise BadInput(
            f"tokenizer.vocab_size is {spec.vocab_size}, the vocabulary given has {vocab.size} pieces; "
            f"write data.tokenizer.vocab_size={vocab.size}"
        )


def _assemble(spec: TokenizerSpec, made: TokenizerBuild) -> Vocab:
    """The vocabulary of these files and special tokens."""
    tokenizer = Tokenizer.from_buffer(made.files["tokenizer.json"])
    ids = tokenizer.get_vocab()
    given = tokenizer.get_vocab_size(with_added_tokens=False)
    if missing := [name for name in made.names.values() if ids[name] >= given and not made.complete]:
        raise BadInput(f"tokenizer.path: {spec.path}: has no {', '.join(missing)}; name a file that has")
    if sorted(ids.values()) != list(range(len(ids))):
        raise BadInput(f"tokenizer.path: {spec.path}: has a piece twice, or leaves out an id; name another file")
    special = {role: ids[made.names[role]] if role in made.names else None for role in ROLES}
    vocab = Vocab.of(spec.kind, len(ids), special, spec.extra_ids, made.files)
    if vocab.unk is None and vocab.words_that_are_special:
        names = ", ".join(vocab.piece(id) for id in sorted(vocab.words_that_are_special))
        raise BadInput(f"tokenizer.path: {spec.path}: takes {names} in a text for the special token; name another file")
    return vocab
