"""The sequences of a step, or documents of a corpus, as one HTML page that needs no script and no other file.

The page shows the same values as the terminal: those of inspect.py and documents.py. Text is escaped and never becomes
markup. Equal values give equal bytes. Sequences outside the window are not laid out, so long batches stay fast.
"""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final

from orchestration.reports import show_controls
from orchestration.terminal.documents import StoredDocument
from orchestration.terminal.inspect import DecodedExample, InspectedStep
from preprocessing.errors import BadInput
from preprocessing.files import write_atomic
from preprocessing.tokenization import ShownToken, legend

_BINS: Final = 16
_HEIGHT: Final = 48  # pixels of a histogram
_CHANGES: Final = {
    "mask": ("m", "replaced by the mask token"),
    "random": ("r", "replaced by a random token"),
    "kept": ("k", "predicted, but not replaced"),
    "predicted": ("k", "predicted, and hidden from itself"),
}
_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c1e21;--quiet:#63676e;--paper:#fff;--line:#dcdfe4;--chip:#f3f4f6;--b:#e9effa;
--special:#8a2f8f;--mask:#1456b8;--random:#b34700;--kept:#1a7038}
@media(prefers-color-scheme:dark){:root{--ink:#e4e6ea;--quiet:#9aa0a8;--paper:#16181b;--line:#363a40;--chip:#23262b;
--b:#1f2b42;--special:#d69adb;--mask:#86b4f5;--random:#f0a268;--kept:#7fcf98}}
body{margin:0 auto;max-width:76rem;padding:1rem;background:var(--paper);color:var(--ink)}
body{font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.3rem}h2{font-size:1rem;margin:0}p{margin:.3rem 0}ul{margin:.2rem 0;padding-left:1.2rem}
.q{color:var(--quiet);font-size:.86rem;overflow-wrap:anywhere}
section{border-top:1px solid var(--line);padding:.7rem 0;content-visibility:auto;contain-intrinsic-size:auto 12rem}
.t{line-height:2.2;overflow-wrap:break-word}
.t i{font-style:normal;background:var(--chip);border-radius:3px;padding:1px 2px;margin-left:3px}
.t i.c{margin-left:1px}.t .b i{background:var(--b)}.t .d i{box-shadow:0 2px var(--quiet)}
.t i.s{color:var(--special);background:none}
.t i.m,.t i.r,.t i.k{border:1px solid;background:none}
.t i.m{color:var(--mask)}.t i.r{color:var(--random);border-style:dashed}
.t i.k{color:var(--kept);border-style:dotted}.t sub{color:var(--ink);margin-left:3px;vertical-align:baseline}
.t u{display:inline-block;width:0;height:1.1em;margin:0 3px;border:0;border-left:2px solid var(--random)}
.t u{vertical-align:middle}
.g{display:flex;flex-wrap:wrap;gap:1.5rem}figure{margin:.5rem 0}figcaption{font-size:.86rem;color:var(--quiet)}
svg{display:block;width:100%;max-width:260px;height:auto;color:var(--mask)}
ol{padding-left:2.2rem}ol li::marker{color:var(--quiet);font-size:.8rem}
"""


def render_step(found: InspectedStep, title: str) -> str:
    """The page of a step: facts and figures of its whole batch, then its decoded sequences."""
    tokens, predicted, targets = sum(found.lengths), sum(found.num_predicted), found.target_lengths
    if found.is_two_sided:
        sizes = [f"{sum(found.source_lengths):,} of source and {sum(targets):,} of target"]
        sizes.append(f"{tokens / max(1, len(targets)):,.1f} tokens per sequence")
    else:
        sizes = []
    facts = [
        f"step {found.step:,} of {found.num_steps:,}",
        f"{len(found.lengths):,} sequences",
        f"{tokens:,} tokens",
        *sizes,
        f"{predicted:,} predicted ({_percent(predicted, sum(targets))})",
        f"{len(found.examples):,} sequences shown",
    ]
    shares = [100 * number / length for number, length in zip(found.num_predicted, targets, strict=True)]
    figures = [
        _draw_histogram("tokens per sequence", found.lengths),
        _draw_histogram("predicted tokens per sequence", found.num_predicted),
        _draw_histogram("predicted tokens in percent", shares),
        *([] if found.is_two_sided else [_draw_fill(found)]),
    ]
    parts = [f'<p class="q">{" · ".join(facts)}</p>', f'<div class="g">{"".join(figures)}</div>', _render_legend(found)]
    return _render_page(title, [*parts, *map(_render_example, found.examples)])


def _render_example(example: DecodedExample) -> str:
    """A sequence with its statistics, documents and tokens."""
    size, num = len(example.tokens), example.num_predicted
    facts = [f"{size:,} tokens", f"{num:,} predicted ({_percent(num, size)})"]
    if example.source is not None:
        facts.insert(0, f"{len(example.source):,} tokens of source")
    if example.pair_label_means:
        facts.append(f"sentence-pair label {example.pair_label}: {example.pair_label_means}")
    facts += [example.attention_mask] if example.attention_mask else []
    documents = "".join(f"<li>{_escape(str(each))}</li>" for each in example.documents)
    if example.source is None:
        text = _render_tokens(example)
    else:
        text = f'source: {_render_chips(example.shown_source)}</p><p class="t">target: {_render_chips(example.shown)}'
    return (
        f'<section id="row-{example.number}"><h2>sequence {example.number}</h2>'
        f'<p class="q">{_escape(" · ".join(facts))}</p><ul class="q">{documents}</ul><p class="t">{text}</p></section>'
    )


def _render_tokens(example: DecodedExample) -> str:
    """The tokens as chips, in spans of equal segment and document; a bar is between two documents."""
    size = len(example.shown)
    document_of = example.document_of or (0,) * size
    parts, before = list[str](), -1
    for (segment, document), places in groupby(range(size), lambda at: (example.segments[at], document_of[at])):
        chips = "".join(_render_chip(example.shown[at], example.changes[at]) for at in places)
        bar = "<u></u>" if document >= 0 and before not in (-1, document) else ""
        before = document if document >= 0 else before
        classes = " ".join(name for name, holds in (("b", segment % 2), ("d", document % 2 and document >= 0)) if holds)
        where = f' title="{_escape(str(example.documents[document]))}"' if example.document_of and document >= 0 else ""
        parts.append(f'{bar}<span class="{classes}"{where}>{chips}</span>')
    return "".join(parts)


def _render_chips(tokens: Iterable[ShownToken]) -> str:
    return "".join(_render_chip(token, "") for token in tokens)


def _render_chip(token: ShownToken, change: str) -> str:
    """A token; a space before it separates words also in copied text."""
    kind = _CHANGES[change][0] if change else "s" if token.is_special else "" if token.before else "c"
    label = f"<sub>{_escape(token.label)}</sub>" if token.label else ""
    mark = f' class="{kind}"' if kind else ""
    return f"{token.before}<i{mark}>{_escape(token.text)}{label}</i>"


def _render_legend(found: InspectedStep) -> str:
    """The kinds of tokens on the page, each as it is drawn, and the signs for white space."""
    changes = [change for change in _CHANGES if any(change in one.changes for one in found.examples)]
    chips = [f'<i class="{_CHANGES[each][0]}">token</i> {_CHANGES[each][1]}' for each in changes]
    chips += ['<i class="s">[X]</i> special token'] if any(_is_special(one) for one in found.examples) else []
    if any(segment % 2 for one in found.examples for segment in one.segments):
        chips.append('<span class="b"><i>token</i></span> second segment')
    if any(number > 0 for one in found.examples for number in one.document_of):
        chips.append('<u></u><span class="d"><i>token</i></span> another document, or another part of it')
    chips += ["<sub>label</sub> token to predict"] if changes else []
    signs = legend(token for one in found.examples for token in (*one.shown_source, *one.shown))
    return f'<p class="t q">{"&emsp; ".join([*chips, *([_escape(signs)] if signs else [])])}</p>'


def _is_special(example: DecodedExample) -> bool:
    return any(token.is_special for token in (*example.shown_source, *example.shown))


def render_documents_page(documents: Sequence[StoredDocument], title: str) -> str:
    """The page of documents: a line for each sentence, a chip for each token; tokens of a word touch each other."""
    return _render_page(title, map(_render_document, documents))


def _render_document(found: StoredDocument) -> str:
    facts = [found.split, found.source, f"key {found.key}"]
    facts += [f"{name} {value}" for name, value in found.metadata.items() if value]
    facts += [] if found.tokens is None else [f"{found.tokens:,} tokens, {len(found.sentences):,} sentences"]
    if found.sentences:
        text = "".join(f'<li class="t">{_render_chips(each)}</li>' for each in found.sentences)
        text = f"<ol>{text}</ol>"
    else:
        text = "".join(f"<p>{_escape(line)}</p>" for line in found.text.splitlines())
    head = f"<h2>document {found.number:,}</h2><p class='q'>{_escape(' · '.join(facts))}</p>"
    return f'<section id="document-{found.number}">{head}{text}</section>'


def _draw_histogram(title: str, values: Sequence[float]) -> str:
    """How many values are in each of equally wide bins, with the least, the mean and the greatest value.

    Equal values are stated without a figure.
    """
    least, most = (min(values), max(values)) if values else (0, 0)
    if least == most:
        return _draw(f"{title}: {least:.4g} in each", _HEIGHT, "")
    whole = all(isinstance(value, int) for value in values)
    num_bins = int(min(_BINS, most - least + 1)) if whole else _BINS
    width = (most - least + whole) / num_bins
    counts = [0] * num_bins
    for value in values:
        counts[min(num_bins - 1, int((value - least) / width))] += 1
    bars, each = list[str](), 256 / num_bins
    for place, count in enumerate(counts):
        height = _HEIGHT * count / max(counts)
        size = f'x="{place * each:.1f}" y="{_HEIGHT - height:.1f}" width="{each - 1:.1f}" height="{height:.1f}"'
        low, high = least + place * width, least + (place + 1) * width - whole
        named = f"{low:.0f}" if whole and round(low) == round(high) else f"{low:.0f} to {high:.0f}"
        bars.append(f"<rect {size}><title>{named}: {count:,}</title></rect>")
    mean = sum(values) / max(1, len(values))
    line = f"{title}: {least:.4g} to {most:.4g}, mean {mean:.4g}"
    return _draw(line, _HEIGHT, "".join(bars))


def _draw_fill(found: InspectedStep) -> str:
    """The tokens of the batch as a part of those of full sequences."""
    full = f'<rect width="256" height="16" opacity=".2"/><rect width="{256 * min(1.0, found.fill):.1f}" height="16"/>'
    return _draw(f"{100 * found.fill:.1f} % of the tokens of full sequences of {found.seq_length:,}", 16, full)


def _draw(line: str, height: int, shapes: str) -> str:
    picture = (
        f'<svg viewBox="0 0 256 {height}" fill="currentColor" role="img" aria-label="{_escape(line)}">{shapes}</svg>'
    )
    return f"<figure>{picture if shapes else ''}<figcaption>{_escape(line)}</figcaption></figure>"


def _render_page(title: str, parts: Iterable[str]) -> str:
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    head = f"{meta}<title>{_escape(title)}</title><style>{_STYLE}</style>"
    body = "\n".join(parts)
    top = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><h1>{_escape(title)}</h1>\n'
    return f"{top}{body}\n</body></html>\n"


def _escape(text: str) -> str:
    return escape(show_controls(text))


def _percent(part: int, whole: int) -> str:
    """
    >>> _percent(1, 8)
    '12.5 %'
    """
    return f"{100 * part / max(1, whole):.1f} %"


def render_frame(page: str) -> str:
    """The page as an element of another page, such as a notebook, whose styles it does not change."""
    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:32rem;border:0"></iframe>'


def write_page(page: str, file: Path, default: str) -> Path:
    """Write a page to `file`, or to `file`/`default` if it is a directory, and return its path.

    Raises BadInput if the directory does not exist, or if the page cannot be written.
    """
    if file.is_dir():
        file /= default
    if not file.absolute().parent.is_dir():
        raise BadInput(f"--html {file}: its directory does not exist; create it first")
    try:
        write_atomic(file, page.encode())
    except OSError as error:
        raise BadInput(f"--html {file}: cannot be written ({error.strerror or error}); use another file") from None
    return file
