"""Unigram (arXiv:1804.10959) through sentencepiece: train a model, read one, write it also for `tokenizers`."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from preprocessing.errors import BadInput
from preprocessing.text import sentences

# Of ALBERT, ids 0 to 4
SPECIALS: Final = {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
SPACE: Final = "\u2581"  # how a piece that begins a word begins
_THREADS: Final = 8  # a part of the result: each thread sums its own share, so the number may not follow the machine
_LONGEST_BYTES: Final = 1 << 20  # sentencepiece leaves longer lines out; its default of 4,192 loses text in silence


def train(texts: Iterable[str], size: int) -> bytes:
    """A model with exactly `size` pieces, specials first; BadInput where the text is too small for that."""
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(line.strip() for text in texts for line in sentences(text)),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            num_threads=_THREADS,
            max_sentence_length=_LONGEST_BYTES,
            control_symbols=[SPECIALS["cls"], SPECIALS["sep"], SPECIALS["mask"]],
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).splitlines()[0].split("] ")[-1].rstrip(".")
        raise BadInput(
            f"vocab.size is {size}, this text gives no such model ({reason}); change it or give more text"
        ) from None
    return model.getvalue()


def read(path: Path) -> bytes:
    """A spiece.model."""
    model = path.read_bytes()
    try:
        SentencePieceProcessor().LoadFromSerializedProto(model)
    except RuntimeError:
        raise BadInput(
            f"vocab.file: {path}: is no sentencepiece model, vocab.kind is unigram; change the kind or the file"
        ) from None
    return model


def files(model: bytes) -> dict[str, bytes]:
    """spiece.model as it is, and as a tokenizer.json that gives the same ids but for ties."""
    processor = SentencePieceProcessor(model_proto=model)
    pieces = [(processor.id_to_piece(id), processor.get_score(id)) for id in range(processor.get_piece_size())]
    tokenizer = Tokenizer(models.Unigram(pieces, processor.unk_id(), byte_fallback=False))
    charsmap = _field(_field(model, 3), 2)  # ModelProto.normalizer_spec.precompiled_charsmap
    steps = [normalizers.Precompiled(charsmap)] if charsmap else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.add_special_tokens(list(SPECIALS.values()))
    known = tokenizer.get_vocab()
    sep, cls = SPECIALS["sep"], SPECIALS["cls"]
    tokenizer.post_processor = processors.BertProcessing((sep, known[sep]), (cls, known[cls]))
    return {"tokenizer.json": tokenizer.to_str().encode(), "spiece.model": model}


def _field(message: bytes, number: int) -> bytes:
    """The last length-delimited field `number` of a protocol buffer message, or nothing.

    >>> _field(bytes([0x08, 0x05, 0x12, 0x02]) + b"hi", 2)
    b'hi'
    """
    found, at = b"", 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:  # the wire type
            case 0:
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 2:
                length, at = _varint(message, at)
                if tag >> 3 == number:
                    found = message[at : at + length]
                at += length
            case _:
                at += 4
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, seven bits a byte, lowest first, and where it ends."""
    value, shift = 0, 0
    while message[at] >= 0x80:
        value |= (message[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | message[at] << shift, at + 1
