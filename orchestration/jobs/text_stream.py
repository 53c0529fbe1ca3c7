"""Generated texts as a stream: parts of text as soon as tokens are chosen, one text after the other."""

from collections.abc import Callable, Sequence
from typing import Final

_INCOMPLETE: Final = "\ufffd"  # stands for bytes that are not a whole character yet


class TextStream:
    """Writes several texts that are generated together, in their order, each after its prompt and on lines of its own.

    A part of a text is written when one more token does not change it. So no part of a character is written, and
    no blank that the next token removes. The parts of a text, joined, are its prompt, the text, and a line end.

    >>> parts = []
    >>> stream = TextStream(["a", "b"], lambda ids: bytes(ids).decode("utf-8", "replace"), parts.append)
    >>> for row, token, is_last in ((0, 0xC3, False), (1, 0x21, True), (0, 0xA4, False), (0, 0x2E, True)):
    ...     stream(row, token, is_last)
    >>> parts
    ['a', 'ä.', '\\n', 'b', '!', '\\n']
    """

    def __init__(
        self, prompts: Sequence[str], decode: Callable[[Sequence[int]], str], write: Callable[[str], object]
    ) -> None:
        self._prompts, self._decode, self._write = prompts, decode, write
        self._ids: list[list[int]] = [[] for _ in prompts]
        self._ended = [False] * len(prompts)
        self._at, self._written, self._before = 0, "", ""
        self._begin()

    def __call__(self, row: int, token: int, is_last: bool) -> None:
        """Receive the next token of a text."""
        self._ids[row].append(token)
        self._ended[row] = is_last
        while self._at < len(self._prompts) and self._ids[self._at]:
            self._write_new()
            if not self._ended[self._at]:
                return
            self._write("\n")
            self._at, self._written, self._before = self._at + 1, "", ""
            self._begin()

    def _begin(self) -> None:
        if self._at < len(self._prompts) and self._prompts[self._at]:
            self._write(self._prompts[self._at])

    def _write_new(self) -> None:
        """Write what is certain of the current text, or the rest of it if it has ended."""
        text = self._decode(self._ids[self._at])
        certain = text if self._ended[self._at] else _common_start(self._before, text).rstrip(_INCOMPLETE)
        self._before = text
        if not certain.startswith(self._written):  # a tokenizer that changes earlier text: repeat the text as it is
            self._write(f"\n{self._prompts[self._at]}")
            self._written = ""
        if certain[len(self._written) :]:
            self._write(certain[len(self._written) :])
            self._written = certain


def _common_start(one: str, other: str) -> str:
    """The longest text that both texts begin with.

    >>> _common_start("the cat", "the car")
    'the ca'
    """
    different = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(different, min(len(one), len(other)))]
