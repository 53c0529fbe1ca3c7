"""As much of the protocol buffer format as it takes to read and write models of sentencepiece."""

from typing import Final

FIELDS: Final = {"trainer": 2, "normalizer": 3, "model_type": 3, "charsmap": 2}  # of sentencepiece_model.proto
_BPE: Final = 2  # TrainerSpec.ModelType; 1 is unigram


def is_bpe(model: bytes) -> bool:
    """Whether a model of sentencepiece is BPE; else it is a unigram language model."""
    return number_at(message_at(model, FIELDS["trainer"]), FIELDS["model_type"], default=1) == _BPE


def message_at(content: bytes, number: int) -> bytes:
    """The last length-delimited field `number` of a protocol buffer message, or nothing.

    >>> message_at(bytes([0x08, 0x05, 0x12, 0x02]) + b"hi", 2)
    b'hi'
    """
    return next((value for at, value in reversed(fields(content)) if at == number and isinstance(value, bytes)), b"")


def number_at(content: bytes, number: int, default: int) -> int:
    """The last varint field `number` of a message.

    >>> number_at(bytes([0x08, 0x05, 0x12, 0x02]) + b"hi", 1, default=0)
    5
    """
    return next((value for at, value in reversed(fields(content)) if at == number and isinstance(value, int)), default)


def fields(content: bytes) -> list[tuple[int, int | bytes]]:
    """Number and value of every field of a protocol buffer message."""
    found: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        match tag & 7:  # the wire type
            case 0:
                value, at = _varint(content, at)
                found.append((tag >> 3, value))
            case 2:
                length, at = _varint(content, at)
                found.append((tag >> 3, content[at : at + length]))
                at += length
            case fixed:
                at += 8 if fixed == 1 else 4
    return found


def field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer message.

    >>> fields(field(1, 300) + field(2, b"hi"))
    [(1, 300), (2, b'hi')]
    """
    if isinstance(value, int):
        return _as_varint(number << 3) + _as_varint(value)
    return _as_varint(number << 3 | 2) + _as_varint(len(value)) + value


def _as_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes([value])
    return bytes([value & 0x7F | 0x80]) + _as_varint(value >> 7)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, seven bits a byte, lowest first, and where it ends."""
    value, shift = 0, 0
    while content[at] >= 0x80:
        value |= (content[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | content[at] << shift, at + 1
