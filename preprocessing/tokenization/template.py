"""Build sequences from the texts of a task, with the special tokens of the tokenizer's template.

The template for one and for two texts is the post-processor in tokenizer.json: [CLS] A [SEP] B [SEP] for BERT, <s> A
</s></s> B </s> for RoBERTa, A </s> B </s> for T5. A tokenizer without a template, such as GPT-2's, has its end token
after each text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from tokenizers import Encoding, Tokenizer, processors

from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.tokenization.vocab import ROLES, Vocab

NAME: Final = "tokenizer.json"
PADDING: Final = "<|pad|>"

SPECIAL: Final = -1
"""Value in `TemplatedRow.text` and `TemplatedRow.word` for special tokens, which belong to no text and no word."""

Text = str | Sequence[str]
"""A text, or the words of a text if labels belong to words."""


@dataclass(frozen=True)
class TemplatedRow:
    """A sequence of S tokens from one or two texts, or a window over a longer sequence."""

    ids: Ints  # int32 [S]
    segments: Ints  # int8 [S]
    text: Ints  # int8 [S]: 0 in the first text, 1 in the second, or SPECIAL
    start: Ints  # int32 [S]: first character of the token in its text, or in its word if words are given
    stop: Ints  # int32 [S]: end of the token, exclusive
    token: Ints  # int32 [S]: position in the original sequence, from which windows are cut
    word: Ints  # int32 [S]: index of the word in its text (the tokenizer's words, or the given words), or SPECIAL
    is_cut: bool = False  # whether a text was truncated

    def at(self, places: Ints) -> "TemplatedRow":
        """Return the sequence of the tokens at these positions."""
        columns = [field.name for field in fields(self) if field.name != "is_cut"]
        return replace(self, **{name: getattr(self, name)[places] for name in columns})

    def columns(self) -> Row:
        """Return the columns of preprocessing/schema.py; all labels are IGNORE."""
        return {
            "input_ids": self.ids,
            "token_type_ids": self.segments,
            "labels": np.full(len(self.ids), IGNORE, np.int32),
        }


class Template:
    """Builds sequences of at most `length` tokens; 0: no maximum.

    If a sequence is too long, tokens are removed one by one from the end of the longer text (BERT's `longest first`).
    Instances do not change after construction. Raises BadInput if `length` leaves no room for two texts.
    """

    def __init__(self, vocab: Vocab, length: int = 0) -> None:
        tokenizer = Tokenizer.from_buffer(vocab.files["tokenizer.json"])
        tokenizer.encode_special_tokens = True  # the name of a special token in a text is ordinary text
        if tokenizer.num_special_tokens_to_add(is_pair=True) == 0:
            tokenizer.post_processor = _ends(vocab)
        if length and length < tokenizer.num_special_tokens_to_add(is_pair=True) + 2:
            least = tokenizer.num_special_tokens_to_add(is_pair=True) + 2
            raise BadInput(
                f"invalid sequence length: got {length}, expected at least {least} for two texts; increase the length"
            )
        if length:
            tokenizer.enable_truncation(length, strategy="longest_first")
        self._vocab, self._tokenizer = vocab, tokenizer

    def row(self, first: Text, second: Text | None = None) -> TemplatedRow:
        """Return the sequence of one or two texts."""
        options = {"is_pretokenized": True} if not isinstance(first, str) else {}
        return _apply_template(self._tokenizer.encode(first, second, **options), self._vocab)


def windows(row: TemplatedRow, length: int, step: int, most_first: int = 64) -> list[TemplatedRow]:
    """Return windows of at most `length` tokens over the second text of a longer sequence, one every `step` tokens.

    Each window has all special tokens and at most `most_first` tokens of the first text. It has fewer if `step` tokens
    of the second text would not fit (BERT 4.2, where `doc_stride` is the step, not the overlap). The last window ends
    with the text. Raises BadInput if a window has no room for both texts.
    """
    at_S = np.arange(len(row.ids))
    inside = np.flatnonzero(row.text == 1)
    first_S = np.flatnonzero(row.text == 0)
    most_first = min(most_first, length - step - int((row.text == SPECIAL).sum()))
    if step < 1 or most_first < 1:
        raise BadInput(
            f"invalid sequence length: {length} tokens leave no room for a question and its text; increase the length"
        )
    before = np.setdiff1d(at_S[: inside[0]], first_S[most_first:])
    after = at_S[inside[-1] + 1 :]
    room = length - len(before) - len(after)
    starts = [0]
    while starts[-1] + room < len(inside):
        starts.append(starts[-1] + step)
    return [row.at(np.concatenate([before, inside[start : start + room], after])) for start in starts]


def with_template(vocab: Vocab) -> Vocab:
    """Return the tokenizer with the template of `Template` in its file, if the file has none.

    AutoTokenizer of transformers then builds the same sequences. Raises BadInput without an end token.
    """
    tokenizer = Tokenizer.from_buffer(vocab.files[NAME])
    if tokenizer.num_special_tokens_to_add(is_pair=True):
        return vocab
    tokenizer.post_processor = _ends(vocab)
    files = vocab.files | {NAME: tokenizer.to_str().encode()}
    return vocab.replace_special_tokens({role: getattr(vocab, role) for role in ROLES}, vocab.unread, files)


def with_padding(vocab: Vocab) -> Vocab:
    """Return a tokenizer without padding with a new last token for it."""
    assert vocab.pad is None, "the tokenizer has a padding token"
    assert not vocab.sentinels, "sentinels must be the last tokens, so no token can follow them"
    tokenizer = Tokenizer.from_buffer(vocab.files[NAME])
    tokenizer.add_special_tokens([PADDING])
    assert tokenizer.token_to_id(PADDING) == vocab.size, "the tokenizer already has a token of this name"
    roles = {role: getattr(vocab, role) for role in ROLES} | {"pad": vocab.size}
    files = {name: content for name, content in vocab.files.items() if name != "specials.json"}
    files[NAME] = tokenizer.to_str().encode()
    return Vocab.of(vocab.kind, vocab.size + 1, roles, 0, files, vocab.unread)


def _ends(vocab: Vocab) -> processors.TemplateProcessing:
    """Return the default template: the end token after each text."""
    if vocab.sep is None:  # OpenAI's GPT
        raise BadInput("the tokenizer has no end token for the default template; use a grid with input_format: gpt1")
    name = vocab.piece(vocab.sep)
    return processors.TemplateProcessing(
        single=["$A", name], pair=["$A", name, "$B:1", f"{name}:1"], special_tokens=[(name, vocab.sep)]
    )


def _apply_template(encoding: Encoding, vocab: Vocab) -> TemplatedRow:
    offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
    ids, ordinary = np.array(encoding.ids, np.int32), np.array([of is not None for of in encoding.sequence_ids])
    if vocab.words_that_are_special:  # in a text these words are unknown, as in a corpus
        assert vocab.unk is not None, "a word-level tokenizer has an unknown token"
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
