"""Frames: the special tokens around the texts of a sequence.

Each kind of tokenizer has a default template: [CLS] A [SEP] for WordPiece and sentencepiece, no special tokens for
GPT-2. Pretraining sequences may have another frame: A </s> for T5, A <sep> <cls> for XLNet, only the text for GPT.
Exported and fine-tuned models use the frame of pretraining.
"""

import json
from typing import Any, Final, NamedTuple

from tokenizers import Tokenizer, processors

from preprocessing.tokenization.vocab import ROLES, Vocab

NAME: Final = "tokenizer.json"
_TEXTS: Final = ("A", "B")


class Frame(NamedTuple):
    """Frame of one text (`single`) and of two (`pair`): roles of special tokens, and A and B, each with its token type.

    >>> Frame("cls A sep", "cls A sep B:1 sep:1").roles == {"cls", "sep"}
    True
    """

    single: str
    pair: str

    @property
    def roles(self) -> set[str]:
        """Roles of the special tokens in the frame."""
        return {item.partition(":")[0] for item in f"{self.single} {self.pair}".split()} - set(_TEXTS)

    @property
    def has_segments(self) -> bool:
        """Whether the two texts of a pair have different token types."""
        return ":" in self.pair

    def add_end(self) -> "Frame":
        """Return the frame with an end token, which is added if it is missing."""
        return self if self.single.endswith(" sep") else Frame(f"{self.single} sep", f"{self.pair} sep")


PLAIN: Final = Frame("A", "A B")
ENDED: Final = Frame("A sep", "A sep B sep")


def add_frame(vocab: Vocab, frame: Frame) -> Vocab:
    """Return the tokenizer with this frame; return `vocab` itself if it already has this frame.

    If the frame has no [CLS], the role `cls` is removed; its token then is a special token that no sequence contains.
    """
    roles = {role: getattr(vocab, role) for role in ROLES}
    if any(roles[role] is None for role in frame.roles):
        return vocab  # this tokenizer cannot build sequences of this frame
    unread = {roles["cls"]} - {None} if "cls" not in frame.roles else set()
    content = _with_template(vocab, frame)
    if not unread and _encodes_equally(vocab.files[NAME], content, frame):
        return vocab
    if unread:
        roles["cls"] = None
    files = vocab.files | {NAME: content}
    return vocab.replace_special_tokens(roles, tuple(sorted({*vocab.unread, *unread})), files)


def with_open_sentinels(vocab: Vocab) -> Vocab:
    """Return the tokenizer with sentinels as ordinary tokens: decoding keeps them, and texts may contain them."""
    return _mark_sentinels(vocab, special=False)


def with_closed_sentinels(vocab: Vocab) -> Vocab:
    """Return the tokenizer with sentinels as special tokens, so that no text is encoded as a sentinel."""
    return _mark_sentinels(vocab, special=True)


def _mark_sentinels(vocab: Vocab, *, special: bool) -> Vocab:
    about = json.loads(vocab.files[NAME])
    first = vocab.size - vocab.sentinels
    others = [token for token in about["added_tokens"] if token["id"] >= first and token["special"] != special]
    if not vocab.sentinels or not others:
        return vocab
    for token in others:
        token["special"] = special
    content = Tokenizer.from_str(json.dumps(about)).to_str().encode()
    return vocab.replace_special_tokens(
        {role: getattr(vocab, role) for role in ROLES}, vocab.unread, vocab.files | {NAME: content}
    )


def _with_template(vocab: Vocab, frame: Frame) -> bytes:
    """Return the tokenizer.json of `vocab` with the template of this frame."""
    tokenizer = Tokenizer.from_buffer(vocab.files[NAME])
    names = {role: vocab.piece(getattr(vocab, role)) for role in frame.roles}
    single, pair = ([_item(item, names) for item in side.split()] for side in frame)
    template = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, getattr(vocab, role)) for role, name in names.items()]
    )
    space = _byte_level_processor(json.loads(vocab.files[NAME]))
    tokenizer.post_processor = processors.Sequence([space, template]) if space else template
    return tokenizer.to_str().encode()


def _item(item: str, names: dict[str, str]) -> str:
    """Return an item of a template in the notation of the library."""
    name, _, segment = item.partition(":")
    return f"{f'${name}' if name in _TEXTS else names[name]}:{segment or 0}"


def _byte_level_processor(about: dict[str, Any]) -> processors.ByteLevel | None:
    """Return the processor that excludes the space before a word from its offsets, for byte-level tokens only."""
    steps = [about["post_processor"] or {}]
    steps += steps[0].get("processors", ())
    step = next((step for step in steps if step.get("type") in ("ByteLevel", "RobertaProcessing")), None)
    return processors.ByteLevel(trim_offsets=step.get("trim_offsets", True)) if step else None


def _encodes_equally(one: bytes, other: bytes, frame: Frame) -> bool:
    """Return whether two tokenizers add the same tokens to one text, and to a pair if the frame has token types."""
    readers = Tokenizer.from_buffer(one), Tokenizer.from_buffer(other)
    one_ids, other_ids = (reader.encode("a").ids for reader in readers)
    if not frame.has_segments:
        return one_ids == other_ids
    one_pair, other_pair = (
        (encoding.ids, encoding.type_ids) for encoding in (reader.encode("a", "b") for reader in readers)
    )
    return one_ids == other_ids and one_pair == other_pair
