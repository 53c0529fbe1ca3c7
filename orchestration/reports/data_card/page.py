"""Sections of text, tables and pictures -> one Markdown text, or one HTML page that needs no other file.

Whatever stands in a document is shown as it is: nothing of it is taken for markup.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from string import Template
from typing import Final

from orchestration.reports.data_card.examples import Token


@dataclass(frozen=True)
class CardTable:
    """Cells as they are shown; the first `num_names` columns are names, the others numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_names: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure by its name; `lines` say the same where there are no pictures."""

    name: str
    shows: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quote:
    """Text of a document, and what it is."""

    head: str
    text: str


@dataclass(frozen=True)
class CardSample:
    """A training sample: its tokens, each with its label, where it is predicted."""

    head: str
    said: str
    tokens: tuple[Token, ...]


Part = CardTable | Picture | Quote | CardSample


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph, and what is shown under it."""

    title: str
    said: str
    parts: tuple[Part, ...] = ()


# Markdown


def markdown(title: str, sections: Sequence[Section]) -> str:
    """The sections as Markdown; pictures become lines."""
    blocks = [f"# {_plain(title)}"]
    for section in sections:
        blocks += [f"## {_plain(section.title)}", _plain(section.said)]
        for part in section.parts:
            blocks += _markdown_part(part)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _markdown_part(part: Part) -> Iterator[str]:
    match part:
        case CardTable():
            rule = ["---"] * part.num_names + ["---:"] * (len(part.head) - part.num_names)
            rows = [[_plain(cell) for cell in row] for row in (part.head, *part.rows)]
            yield "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:]))
        case Picture():
            yield _fenced("\n".join(part.lines)) if part.lines else ""
        case Quote():
            yield f"**{_plain(part.head)}**"
            yield _fenced(part.text)
        case CardSample():
            yield f"**{_plain(part.head)}**: {_plain(part.said)}"
            yield _fenced("".join(_marked(token) for token in part.tokens).strip())


def _plain(text: str) -> str:
    """Text in a line of Markdown, in which nothing is markup.

    >>> print(_plain("__init__ | <b>"))
    \\_\\_init\\_\\_ \\| \\<b\\>
    """
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", " ".join(text.split()))


def _fenced(text: str) -> str:
    """Text between fences that are longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}" if text else ""


def _marked(token: Token) -> str:
    """A token of a sample in plain text: `{shown = label}` where it is predicted.

    >>> _marked(Token(" [MASK]", "cat", True))
    ' {[MASK] = cat}'
    """
    if not token.label:
        return token.text
    return " " * token.text.startswith(" ") + f"{{{token.text.removeprefix(' ')} = {token.label}}}"


# HTML

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1f2933; --paper: #fdfdfc; --muted: #667380; --line: #d9dee3;
  --panel: #f3f5f6; --accent: #b4451f; --predicted: #ffe2a8; --answer: #1b6e3c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dde3e8; --paper: #15191d; --muted: #93a0ac; --line: #343c44;
    --panel: #1e242a; --accent: #f08a5d; --predicted: #6b4a0c; --answer: #7bd49b; }
  figure img { filter: invert(1) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 52rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { margin: 0 0 .25rem; font-size: 2rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 2.75rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); font-size: 1.3rem; }
h3 { margin: 1.5rem 0 .4rem; font-size: 1rem; overflow-wrap: anywhere; }
p { margin: .4rem 0 .8rem; max-width: 44rem; }
nav { margin: 1rem 0 0; font-size: .9rem; } nav a { margin-right: .9rem; white-space: nowrap; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
.scroll { overflow-x: auto; margin: .75rem 0 1rem; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { min-width: 6.5rem; padding: .28rem 1.4rem .28rem 0; border-bottom: 1px solid var(--line); text-align: left;
  font-weight: normal; vertical-align: baseline; overflow-wrap: anywhere; }
thead th { color: var(--muted); }
.n { min-width: 0; padding-right: .4rem; padding-left: 1.4rem; text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; overflow-wrap: normal; }
figure { margin: 1rem 0; } figure img { display: block; width: 100%; max-width: 42rem; height: auto; }
pre, .tokens { margin: .3rem 0 1rem; padding: .8rem 1rem; border-radius: 6px; background: var(--panel);
  font: .86rem/1.6 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.tokens mark { padding: .05em .25em; border-radius: 3px; background: var(--predicted); color: inherit; }
.tokens b { color: var(--answer); } .tokens i { color: var(--muted); font-style: normal; }
"""

_PAGE: Final = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="Sesame">
<title>$title</title>
<style>$style</style>
</head>
<body>
<header>
<h1>$title</h1>
<nav aria-label="Sections">
$links
</nav>
</header>
<main>
$main
</main>
</body>
</html>
""")


def html(title: str, sections: Sequence[Section], pngs: Mapping[str, bytes]) -> str:
    """The sections as one page; pictures that are not among `pngs` are told in lines."""
    anchors = [re.sub(r"\W+", "-", section.title.lower()) for section in sections]
    links = (f'<a href="#{anchor}">{escape(each.title)}</a>' for anchor, each in zip(anchors, sections, strict=True))
    bodies = (_section(anchor, each, pngs) for anchor, each in zip(anchors, sections, strict=True))
    return _PAGE.substitute(title=escape(title), style=_STYLE, links="\n".join(links), main="\n".join(bodies))


def _section(anchor: str, section: Section, pngs: Mapping[str, bytes]) -> str:
    parts = "\n".join(_html_part(part, pngs) for part in section.parts)
    said = f"<p>{escape(section.said)}</p>\n" if section.said else ""
    return f'<section id="{anchor}">\n<h2>{escape(section.title)}</h2>\n{said}{parts}\n</section>'


def _html_part(part: Part, pngs: Mapping[str, bytes]) -> str:
    match part:
        case CardTable():
            head = _row("th", ' scope="col"', part.head, part.num_names)
            rows = "\n".join(_row("td", "", row, part.num_names) for row in part.rows)
            return f'<div class="scroll"><table>\n<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'
        case Picture(name=name) if name in pngs:
            source = f"data:image/png;base64,{base64.b64encode(pngs[name]).decode()}"
            return f'<figure><img src="{source}" alt="{escape(part.shows)}"></figure>'
        case Picture():
            lines = escape("\n".join(part.lines))
            return f"<pre>{lines}</pre>" if lines else ""
        case Quote():
            return f"<h3>{escape(part.head)}</h3>\n<pre>{escape(part.text)}</pre>"
        case CardSample():
            tokens = "".join(map(_token, part.tokens)).strip()
            shown = f'<div class="tokens">{tokens}</div>' if tokens else ""
            return f"<h3>{escape(part.head)}</h3>\n<p>{escape(part.said)}</p>\n{shown}"


def _row(tag: str, attributes: str, cells: Sequence[str], num_names: int) -> str:
    number = ' class="n"'
    return (
        "<tr>"
        + "".join(
            f"<{tag}{attributes}{number if at >= num_names else ''}>{escape(cell)}</{tag}>"
            for at, cell in enumerate(cells)
        )
        + "</tr>"
    )


def _token(token: Token) -> str:
    """A token of a sample: what is predicted is marked, with its label behind it; special tokens are quiet."""
    space, text = " " * token.text.startswith(" "), escape(token.text.removeprefix(" "))
    if token.label:
        return f"{space}<mark>{text}</mark><b>({escape(token.label)})</b>"
    return f"{space}<i>{text}</i>" if token.is_special else space + text
