"""Texts of a task -> rows, with the special tokens where the template of the vocabulary puts them.

A vocabulary's tokenizer.json says how a row of one text and of two looks (its post-processor): [CLS] A [SEP] B [SEP] of
BERT, <s> A </s></s> B </s> of RoBERTa, A </s> B </s> of T5. One without such a template, GPT-2's, gets its end of text
behind each text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from tokenizers import Encoding, Tokenizer, processors

from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.vocab.vocab import Vocab

SPECIAL: Final = -1
"""In `Templated.text` and `Templated.word`: a special token, which is of no text and no word."""

Text = str | Sequence[str]
"""A text, or its words, where labels belong to words."""


@dataclass(frozen=True)
class Templated:
    """A row of S tokens of one or two texts, or one of the windows over a long one."""

    ids: Ints  # int32 [S]
    segments: Ints  # int8 [S]
    text: Ints  # int8 [S]: 0 of the first text, 1 of the second, SPECIAL
    start: (
        Ints  # int32 [S]: the first character of its text that the token stands for; of its word, where words are given
    )
    stop: Ints  # int32 [S]: the one behind its last
    word: Ints  # int32 [S]: number of the word in its text, as the tokenizer cuts words, or as they were given; SPECIAL

    def row(self) -> Row:
        """The columns of preprocessing/schema.py, without labels."""
        return {"ids": self.ids, "segments": self.segments, "labels": np.full(len(self.ids), IGNORE, np.int32)}


class Template:
    """Makes rows of at most `length` tokens of texts; thread-safe, as nothing changes after it is made.

    `cut` says which text a long row loses tokens of: of the longer one each time (BERT's `longest`), the first, or the
    second. With `overlap` a long row becomes windows over that text, each beginning with so many tokens of the one
    before it; `longest` cannot have windows.
    Raises BadInput where `length` leaves no room for a text.
    """

    def __init__(
        self, vocab: Vocab, length: int, *, cut: Literal["longest", "first", "second"] = "longest", overlap: int = -1
    ) -> None:
        assert overlap < 0 or cut != "longest", "which text are the windows over?"
        tokenizer = Tokenizer.from_buffer(vocab.files["tokenizer.json"])
        tokenizer.encode_special_tokens = True  # a special token that is written out is ordinary text
        if tokenizer.num_special_tokens_to_add(is_pair=True) == 0:
            tokenizer.post_processor = _ends(vocab)
        if length <= tokenizer.num_special_tokens_to_add(is_pair=True):
            raise BadInput(f"rows of {length} tokens have no room for two texts; ask for longer rows")
        names = {"longest": "longest_first", "first": "only_first", "second": "only_second"}
        tokenizer.enable_truncation(length, stride=max(0, overlap), strategy=names[cut])
        self._vocab, self._tokenizer, self._has_windows = vocab, tokenizer, overlap >= 0

    def rows(self, first: Text, second: Text | None = None) -> list[Templated]:
        """The row of one or two texts; its windows, where there are some, in order."""
        given = {"is_pretokenized": True} if not isinstance(first, str) else {}
        encoding = self._tokenizer.encode(first, second, **given)
        windows = [encoding, *(encoding.overflowing if self._has_windows else ())]
        return [_templated(each, self._vocab) for each in windows]


def _ends(vocab: Vocab) -> processors.TemplateProcessing:
    """The template of a vocabulary that has none: its end of text behind each text."""
    assert vocab.sep is not None, "a vocabulary without an end of text has no rows"
    name = vocab.piece(vocab.sep)
    return processors.TemplateProcessing(
        single=["$A", name], pair=["$A", name, "$B:1", f"{name}:1"], special_tokens=[(name, vocab.sep)]
    )


def _templated(encoding: Encoding, vocab: Vocab) -> Templated:
    offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
    ids, ordinary = np.array(encoding.ids, np.int32), np.array([of is not None for of in encoding.sequence_ids])
    if vocab.words_that_are_special:  # in a text they are unknown, as in a corpus
        ids[ordinary & np.isin(ids, list(vocab.words_that_are_special))] = vocab.unk
    return Templated(
        ids=ids,
        segments=np.array(encoding.type_ids, np.int8),
        text=np.array([SPECIAL if of is None else of for of in encoding.sequence_ids], np.int8),
        start=offsets[:, 0],
        stop=offsets[:, 1],
        word=np.array([SPECIAL if of is None else of for of in encoding.word_ids], np.int32),
    )
