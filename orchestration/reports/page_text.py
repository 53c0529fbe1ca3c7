"""Text of documents on HTML and Markdown pages."""

from typing import Final

_CONTROLS: Final = (*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CODES: Final = {code: f"\\u{code:04x}" for code in _CONTROLS}  # control characters except tab and the ends of lines


def show_controls(text: str) -> str:
    """The text with its control characters as codes, because some of them change the order of the text around them.

    >>> print(show_controls("a\\u202eb"))
    a\\u202eb
    """
    return text.translate(_CODES)
