"""Texts of a task -> rows, with the special tokens where the template of the vocabulary puts them.

A vocabulary's tokenizer.json says how a row of one text and of two looks (its post-processor): [CLS] A [SEP] B [SEP] of
BERT, <s> A </s></s> B </s> of RoBERTa, A </s> B </s> of T5. One without such a template, GPT-2's, gets its end of text
behind each text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from tokenizers import Encoding, Tokenizer, processors

from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.tokenization.vocab import Vocab

SPECIAL: Final = -1
"""In `Templated.text` and `Templated.word`: a special token, which is of no text and no word."""

Text = str | Sequence[str]
"""A text, or its words, where labels belong to words."""


@dataclass(frozen=True)
class TemplatedRow:
    """A row of S tokens of one or two texts, or one of the windows over a long one."""

    ids: Ints  # int32 [S]
    segments: Ints  # int8 [S]
    text: Ints  # int8 [S]: 0 of the first text, 1 of the second, SPECIAL
    start: (
        Ints  # int32 [S]: the first character of its text that the token stands for; of its word, where words are given
    )
    stop: Ints  # int32 [S]: the one behind its last
    token: Ints  # int32 [S]: its place in the row that it was made for: windows of one row share these
    word: Ints  # int32 [S]: number of the word in its text, as the tokenizer cuts words, or as they were given; SPECIAL
    is_cut: bool = False  # whether the texts lost tokens at their ends

    def at(self, places: Ints) -> "TemplatedRow":
        """A row of the tokens at these places."""
        columns = [field.name for field in fields(self) if field.name != "is_cut"]
        return replace(self, **{name: getattr(self, name)[places] for name in columns})

    def columns(self) -> Row:
        """The columns of preprocessing/schema.py, without labels."""
        return {
            "input_ids": self.ids,
            "token_type_ids": self.segments,
            "labels": np.full(len(self.ids), IGNORE, np.int32),
        }


class Template:
    """Makes rows of at most `length` tokens, 0 for any number; where they are too long, the longer text loses tokens at
    its end, one by one (BERT's `longest first`). Nothing of it changes after it is made.

    Raises BadInput where `length` leaves no room for two texts.
    """

    def __init__(self, vocab: Vocab, length: int = 0) -> None:
        tokenizer = Tokenizer.from_buffer(vocab.files["tokenizer.json"])
        tokenizer.encode_special_tokens = True  # a special token that is written out is ordinary text
        if tokenizer.num_special_tokens_to_add(is_pair=True) == 0:
            tokenizer.post_processor = _ends(vocab)
        if length and length < tokenizer.num_special_tokens_to_add(is_pair=True) + 2:
            raise BadInput(f"rows of {length} tokens have no room for two texts; ask for longer rows")
        if length:
            tokenizer.enable_truncation(length, strategy="longest_first")
        self._vocab, self._tokenizer = vocab, tokenizer

    def row(self, first: Text, second: Text | None = None) -> TemplatedRow:
        """The row of one or two texts."""
        given = {"is_pretokenized": True} if not isinstance(first, str) else {}
        return _templated(self._tokenizer.encode(first, second, **given), self._vocab)


def windows(row: TemplatedRow, length: int, step: int, most_first: int = 64) -> list[TemplatedRow]:
    """Rows of at most `length` tokens over the second text of a row that is longer, one every `step` tokens.

    Each has the first text before it, at most `most_first` tokens of it, fewer where they would not leave `step` tokens
    of the second one, and all special tokens (BERT 4.2; `doc_stride` is the step there, not the overlap). The last one
    ends with the text. Raises BadInput where rows are too short for a token of either.
    """
    at_S = np.arange(len(row.ids))
    inside = np.flatnonzero(row.text == 1)
    first_S = np.flatnonzero(row.text == 0)
    most_first = min(most_first, length - step - int((row.text == SPECIAL).sum()))
    if step < 1 or most_first < 1:
        raise BadInput(f"rows of {length} tokens have no room for a question and its text; ask for longer rows")
    before = np.setdiff1d(at_S[: inside[0]], first_S[most_first:])
    behind = at_S[inside[-1] + 1 :]
    room = length - len(before) - len(behind)
    starts = [0]
    while starts[-1] + room < len(inside):
        starts.append(starts[-1] + step)
    return [row.at(np.concatenate([before, inside[start : start + room], behind])) for start in starts]


def _ends(vocab: Vocab) -> processors.TemplateProcessing:
    """The template of a vocabulary that has none: its end of text behind each text."""
    if vocab.sep is None:  # OpenAI's GPT
        raise BadInput("the vocabulary has no end of text to put behind a row; use a grid with form: gpt1")
    name = vocab.piece(vocab.sep)
    return processors.TemplateProcessing(
        single=["$A", name], pair=["$A", name, "$B:1", f"{name}:1"], special_tokens=[(name, vocab.sep)]
    )


def _templated(encoding: Encoding, vocab: Vocab) -> TemplatedRow:
    offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
    ids, ordinary = np.array(encoding.ids, np.int32), np.array([of is not None for of in encoding.sequence_ids])
    if vocab.words_that_are_special:  # in a text they are unknown, as in a corpus
        assert vocab.unk is not None, "a vocabulary of words has one for those that it does not know"
        ids[ordinary & np.isin(ids, list(vocab.words_that_are_special))] = vocab.unk
    return TemplatedRow(
        ids=ids,
        segments=np.array(encoding.type_ids, np.int8),
        text=np.array([SPECIAL if of is None else of for of in encoding.sequence_ids], np.int8),
        start=offsets[:, 0],
        stop=offsets[:, 1],
        token=np.arange(len(ids), dtype=np.int32),
        word=np.array([SPECIAL if of is None else of for of in encoding.word_ids], np.int32),
        is_cut=bool(encoding.overflowing),
    )
