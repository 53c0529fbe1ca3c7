"""Tokens as readable text, for `sesame inspect`, data cards and training samples.

A token is shown as the characters that it represents, not in the notation of the tokenizer. A single space stays a
space. White space that is easy to overlook has a sign, which `legend` explains.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from preprocessing.tokenization.vocab import Vocab

LINE_BREAK, TAB, SPACE_SIGN, CONTINUED = "\u23ce", "\u21e5", "\u00b7", "\u2026"
_SIGNS: Final = {
    LINE_BREAK: "line break",
    TAB: "tab",
    SPACE_SIGN: "a space that is easy to overlook",
}
_PICTURES: Final = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421", 0x0A: LINE_BREAK, 0x09: TAB}
_SPACES: Final = re.compile(" {2,}")
_BYTES: Final = re.compile("\u27e8[0-9a-f]{2}( [0-9a-f]{2})*\u27e9")


class ShownToken(NamedTuple):
    """A token as readable text; `before` and `text` of all tokens, joined, are the sequence.

    `before` is the space before the token; `label` is the predicted text at this position, "" if none.
    """

    before: str
    text: str
    label: str = ""
    is_special: bool = False


def token_texts(vocab: Vocab, ids: Iterable[int], alone: Iterable[int] = ()) -> list[str]:
    """Return the exact text of each token; joined, they are the whole text. Special tokens appear by name.

    A byte-level token may contain a part of a character: the character is shown at the token that completes it. Bytes
    that form no character are written as \u27e8e2 82\u27e9. Tokens at the positions `alone` are shown
    separately, even if they are parts of one character.
    """
    ids, special = list(map(int, ids)), set(vocab.special_ids)
    apart = {*alone, *(place for place, id in enumerate(ids) if id in special)}
    texts = list[str]()
    for is_apart, places in groupby(range(len(ids)), key=apart.__contains__):
        each = [vocab.utf8(ids[place]) for place in places]
        texts += [text for one in each for text in _texts([one])] if is_apart else _texts(each)
    return texts


def display_tokens(vocab: Vocab, ids: Sequence[int], labels: Sequence[int] = ()) -> list[ShownToken]:
    """Return the tokens of a sequence with their labels; a negative label means no prediction.

    A special token, such as a mask, is preceded by a space if its label is. If a label and its ordinary token differ in
    this space, the label shows it.
    """
    labels, special = labels or [-1] * len(ids), set(vocab.special_ids)
    texts = token_texts(vocab, ids, (place for place, label in enumerate(labels) if label >= 0))
    shown = []
    for id, label, text in zip(ids, labels, texts, strict=True):
        answer = token_texts(vocab, [label])[0] if label >= 0 else ""
        shown.append(_display(text, answer.rstrip(" ") or SPACE_SIGN * len(answer), id in special))
    if shown:
        shown[0] = shown[0]._replace(before="")
    return _with_signs(shown)


def display_text(vocab: Vocab, ids: Sequence[int]) -> str:
    """Return the tokens of a sequence as one readable text."""
    return "".join(token.before + token.text for token in display_tokens(vocab, ids))


def display_piece(vocab: Vocab, id: int) -> str:
    """Return one token for a table, with a sign for each space."""
    return _visible(token_texts(vocab, [id])[0]).replace(" ", SPACE_SIGN)


def legend(tokens: Iterable[ShownToken]) -> str:
    """Explain the signs in these tokens in one line; "" if there are none.

    >>> legend([ShownToken(" ", "the", "a"), ShownToken("", "\u23ce")])
    '\u23ce line break'
    """
    tokens = list(tokens)
    text = "".join(token.before + token.text + token.label for token in tokens)
    entries = [f"{sign} {meaning}" for sign, meaning in _SIGNS.items() if sign in text]
    if any(token.label.startswith(CONTINUED) and token.label != CONTINUED for token in tokens):
        entries.append(f"{CONTINUED} the label continues the preceding word")
    if match := _BYTES.search(text):
        entries.append(f"{match[0]} bytes of an incomplete character")
    return "; ".join(entries)


def _display(text: str, answer: str, is_special: bool) -> ShownToken:
    """Return the token with this exact text and the label `answer`.

    >>> _display("[MASK]", " the", True), _display("[MASK]", "ing", True)[:3], _display("x", " the", False)[:3]
    (ShownToken(before=' ', text='[MASK]', label='the', is_special=True), ('', '[MASK]', 'ing'), ('', 'x', '\u00b7the'))
    """
    begins_word, answer_begins_word = text.startswith(" "), answer.startswith(" ")
    if not answer:
        return ShownToken(" " * begins_word, text.removeprefix(" "), "", is_special)
    if text == " ":
        return ShownToken("", SPACE_SIGN, SPACE_SIGN + answer[1:] if answer_begins_word else answer, is_special)
    before = answer_begins_word if is_special else begins_word
    if before == answer_begins_word:
        label = answer.removeprefix(" ")
    else:
        label = SPACE_SIGN + answer[1:] if answer_begins_word else CONTINUED + answer
    return ShownToken(" " * before, text.removeprefix(" "), label, is_special)


def _with_signs(tokens: Sequence[ShownToken]) -> list[ShownToken]:
    """Add a sign for each control character and for each of several consecutive spaces."""
    text = _visible("".join(token.before + token.text for token in tokens))
    shown, start = list[ShownToken](), 0
    for token in tokens:
        middle = start + len(token.before)
        stop = middle + len(token.text)
        shown.append(ShownToken(text[start:middle], text[middle:stop], _visible(token.label), token.is_special))
        start = stop
    return shown


def _visible(text: str) -> str:
    """
    >>> _visible("one two\\n    three")
    'one two\u23ce\u00b7\u00b7\u00b7\u00b7three'
    """
    return _SPACES.sub(lambda run: SPACE_SIGN * len(run[0]), text.translate(_PICTURES))


def _texts(tokens: Sequence[bytes]) -> list[str]:
    """Return the text of each token from its UTF-8 bytes; a character belongs to the token with its last byte.

    >>> _texts([b"5 ", b"\\xe2\\x82", b"\\xac!", b"\\xe2"])
    ['5 ', '', '\u20ac!', '\u27e8e2\u27e9']
    """
    texts = [""] * len(tokens)
    token_of = [number for number, token in enumerate(tokens) for _ in token]
    at = 0
    for text, width in _characters(b"".join(tokens)):
        at += width
        texts[token_of[at - 1]] += text
    return [re.sub("\u27e9\u27e8", " ", text) for text in texts]


def _characters(content: bytes) -> Iterator[tuple[str, int]]:
    """Yield the characters of UTF-8 and their numbers of bytes; other bytes are written in hexadecimal."""
    start = 0
    while start < len(content):
        try:
            stop, bad = len(content), len(content)
            text = content[start:].decode()
        except UnicodeDecodeError as error:
            stop, bad = start + error.start, start + error.end
            text = content[start:stop].decode()
        yield from ((char, len(char.encode())) for char in text)
        yield from ((f"\u27e8{byte:02x}\u27e9", 1) for byte in content[stop:bad])
        start = bad
