r"""Writes sections of text, tables and pictures as Markdown, or as one HTML page that needs no other file.

The text of a document is escaped: no part of it acts as markup. Control characters are shown as codes such as \u202e,
because some of them change the order in which the text around them is displayed.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape as html_escape
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from orchestration.reports.page_text import show_controls
from preprocessing.tokenization import ShownToken


@dataclass(frozen=True)
class CardTable:
    """Cells as text; the first `num_names` columns hold names, the others numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_names: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure by its name, its description, and lines of text that replace it where no picture is available."""

    name: str
    shows: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quote:
    """Text of a document, under a heading."""

    head: str
    text: str


@dataclass(frozen=True)
class CardSample:
    """The tokens of a training sample; a token that is predicted has a label."""

    head: str
    paragraph: str
    tokens: tuple[ShownToken, ...]


@dataclass(frozen=True)
class Fold:
    """Quotes that are hidden until a reader opens them."""

    head: str
    quotes: tuple[Quote, ...]


Part = CardTable | Picture | Quote | CardSample | Fold


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph, and the parts below it."""

    title: str
    paragraph: str
    parts: tuple[Part, ...] = ()

    @property
    def anchor(self) -> str:
        return re.sub(r"\W+", "-", self.title.lower())


# Markdown


def markdown(title: str, sections: Sequence[Section]) -> str:
    """The sections as Markdown; pictures become lines of text."""
    blocks = [f"# {_plain(title)}"]
    for section in sections:
        blocks += [f"## {_plain(section.title)}", _plain(section.paragraph)]
        for part in section.parts:
            blocks += _markdown_part(part)
    return show_controls("\n\n".join(block for block in blocks if block) + "\n")


def _markdown_part(part: Part) -> Iterator[str]:
    match part:
        case CardTable():
            rule = ["---"] * part.num_names + ["---:"] * (len(part.head) - part.num_names)
            rows = [[_plain(cell) for cell in row] for row in (part.head, *part.rows)]
            yield "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:]))
        case Picture():
            yield _fence("\n".join(part.lines)) if part.lines else ""
        case Quote():
            yield f"**{_plain(part.head)}**"
            yield _fence(part.text)
        case Fold():
            yield f"<details>\n<summary>{html_escape(' '.join(part.head.split()))}</summary>"
            for quote in part.quotes:
                yield from _markdown_part(quote)
            yield "</details>"
        case CardSample():
            yield f"**{_plain(part.head)}**: {_plain(part.paragraph)}"
            yield _fence("".join(_mark(token) for token in part.tokens).strip())


def _plain(text: str) -> str:
    """One line of Markdown without markup.

    >>> print(_plain("__init__ | <b>"))
    \\_\\_init\\_\\_ \\| \\<b\\>
    """
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", " ".join(text.split()))


def _fence(text: str) -> str:
    """A fenced block; its fence is longer than any run of backticks inside."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}" if text else ""


def _mark(token: ShownToken) -> str:
    """A token of a sample as plain text; a predicted token becomes `{shown = label}`.

    >>> _mark(ShownToken(" ", "[MASK]", "cat", True))
    ' {[MASK] = cat}'
    """
    return token.before + (f"{{{token.text} = {token.label}}}" if token.label else token.text)


# HTML


def html(title: str, sections: Sequence[Section], pngs: Mapping[str, bytes]) -> str:
    """The sections as one page; a picture that is not among `pngs` becomes lines of text."""
    images = {name: f"data:image/png;base64,{base64.b64encode(png).decode()}" for name, png in pngs.items()}
    return _templates().get_template("page.html").render(title=title, sections=sections, images=images)


@cache
def _templates() -> Environment:
    """The templates of this directory: they escape each value, and an unknown name is an error."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: show_controls(value) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.tests |= {
        "table": lambda part: isinstance(part, CardTable),
        "picture": lambda part: isinstance(part, Picture),
        "quote": lambda part: isinstance(part, Quote),
        "fold": lambda part: isinstance(part, Fold),
        "sample": lambda part: isinstance(part, CardSample),
    }
    return found
