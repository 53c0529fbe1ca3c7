"""Special tokens around the texts of a row, as pretraining puts them there: a vocabulary reads its texts like that.

A vocabulary of a kind begins with the template of that kind ([CLS] A [SEP] of word pieces and of sentencepiece, nothing
of GPT-2's bytes); the rows of a recipe may have another one: A </s> of T5, A <sep> <cls> of XLNet, the text alone of
GPT. What is exported, fine-tuned and asked has that of the rows.
"""

import json
from typing import Any, Final, NamedTuple

from tokenizers import Tokenizer, processors

from preprocessing.tokenization.vocab import ROLES, Vocab

NAME: Final = "tokenizer.json"
_TEXTS: Final = ("A", "B")


class Frame(NamedTuple):
    """What stands around one text, and around two: roles of special tokens and A and B, each with its segment.

    >>> Frame("cls A sep", "cls A sep B:1 sep:1").roles == {"cls", "sep"}
    True
    """

    single: str
    pair: str

    @property
    def roles(self) -> set[str]:
        """Roles of its special tokens."""
        return {item.partition(":")[0] for item in f"{self.single} {self.pair}".split()} - set(_TEXTS)

    @property
    def has_segments(self) -> bool:
        """Whether it tells the two texts of a pair apart."""
        return ":" in self.pair

    def ended(self) -> "Frame":
        """The same with an end behind it, where it has none."""
        return self if self.single.endswith(" sep") else Frame(f"{self.single} sep", f"{self.pair} sep")


PLAIN: Final = Frame("A", "A B")
ENDED: Final = Frame("A sep", "A sep B sep")


def add_frame(vocab: Vocab, frame: Frame) -> Vocab:
    """The vocabulary whose rows have this frame; the same one where they have it already.

    A [CLS] that no row has is no role of it then: it is a special token that nothing reads.
    """
    roles = {role: getattr(vocab, role) for role in ROLES}
    if any(roles[role] is None for role in frame.roles):
        return vocab  # rows of this frame cannot be made with it either
    unread = {roles["cls"]} - {None} if "cls" not in frame.roles else set()
    wanted = _with_template(vocab, frame)
    if not unread and _reads_alike(vocab.files[NAME], wanted, frame):
        return vocab
    if unread:
        roles["cls"] = None
    files = vocab.files | {NAME: wanted}
    return vocab.remade(roles, tuple(sorted({*vocab.unread, *unread})), files)


def with_open_sentinels(vocab: Vocab) -> Vocab:
    """The same, whose sentinels are no special tokens: decoding keeps them, and a text may have them written out."""
    return _marked(vocab, special=False)


def with_closed_sentinels(vocab: Vocab) -> Vocab:
    """The same, whose sentinels are special tokens, so that no text gives them."""
    return _marked(vocab, special=True)


def _marked(vocab: Vocab, *, special: bool) -> Vocab:
    about = json.loads(vocab.files[NAME])
    first = vocab.size - vocab.sentinels
    others = [token for token in about["added_tokens"] if token["id"] >= first and token["special"] != special]
    if not vocab.sentinels or not others:
        return vocab
    for token in others:
        token["special"] = special
    content = Tokenizer.from_str(json.dumps(about)).to_str().encode()
    return vocab.remade({role: getattr(vocab, role) for role in ROLES}, vocab.unread, vocab.files | {NAME: content})


def _with_template(vocab: Vocab, frame: Frame) -> bytes:
    """Its tokenizer.json with the template of a frame."""
    tokenizer = Tokenizer.from_buffer(vocab.files[NAME])
    names = {role: vocab.piece(getattr(vocab, role)) for role in frame.roles}
    single, pair = ([_item(item, names) for item in side.split()] for side in frame)
    template = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, getattr(vocab, role)) for role, name in names.items()]
    )
    space = _of_bytes(json.loads(vocab.files[NAME]))
    tokenizer.post_processor = processors.Sequence([space, template]) if space else template
    return tokenizer.to_str().encode()


def _item(item: str, names: dict[str, str]) -> str:
    """A part of a template as the library writes it."""
    name, _, segment = item.partition(":")
    return f"{f'${name}' if name in _TEXTS else names[name]}:{segment or 0}"


def _of_bytes(about: dict[str, Any]) -> processors.ByteLevel | None:
    """What leaves the space before a word out of its offsets, where pieces are of bytes."""
    steps = [about["post_processor"] or {}]
    steps += steps[0].get("processors", ())
    found = next((step for step in steps if step.get("type") in ("ByteLevel", "RobertaProcessing")), None)
    return processors.ByteLevel(trim_offsets=found.get("trim_offsets", True)) if found else None


def _reads_alike(one: bytes, other: bytes, frame: Frame) -> bool:
    """Whether two tokenizers put the same around texts: around one text, and where two have segments around a pair."""
    readers = Tokenizer.from_buffer(one), Tokenizer.from_buffer(other)
    one_ids, other_ids = (reader.encode("a").ids for reader in readers)
    if not frame.has_segments:
        return one_ids == other_ids
    one_pair, other_pair = ((found.ids, found.type_ids) for found in (reader.encode("a", "b") for reader in readers))
    return one_ids == other_ids and one_pair == other_pair
