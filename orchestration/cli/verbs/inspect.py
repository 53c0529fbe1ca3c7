"""sesame inspect"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from orchestration.cli import options
from orchestration.cli.groups import RunOptions
from orchestration.cli.shared import command, flags_of
from orchestration.terminal import CommandResult, print_answer, show_wait
from preprocessing.errors import BadInput

if TYPE_CHECKING:
    from orchestration.terminal.documents import StoredDocument

_ROWS: Final = 4
_PAGE_ROWS: Final = 256


def inspect(
    run: options.RunRecipeOrCorpus,
    overrides: options.Overrides = None,
    *,
    step: Annotated[int, typer.Option(metavar="N", min=0, help="Show the batch of this step.")] = 0,
    rows: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Show N sequences.", show_default=f"{_ROWS}; with --html {_PAGE_ROWS}"),
    ] = None,
    row: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Show sequence N; with --rows, those after it, too.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page to FILE, or into this directory.")
    ] = None,
    document: Annotated[
        str, typer.Option(metavar="KEY", help="Show the document of the corpus with this key, or its first digits.")
    ] = "",
    dropped: Annotated[
        str, typer.Option(metavar="REASON", help="Show a sample of the documents dropped for this reason, or all.")
    ] = "",
    domains: Annotated[bool, typer.Option("--domains", help="Show the hosts with the most tokens.")] = False,
    where: RunOptions,
    as_json: options.Json = False,
) -> int:
    """Show the decoded training sequences of a step, or documents of a corpus.

    In a sequence, masked tokens are marked, with their labels. The documents of a corpus directory are shown N at a
    time.
    """
    asked = {"--document": document, "--dropped": dropped, "--domains": domains}
    given = [name for name, value in asked.items() if value]
    if len(given) > 1:
        raise BadInput(f"invalid options: got {' and '.join(given)}, expected one of them; leave the others out")
    options_of_rows = {"--step": step or None, "--rows": rows, "--row": row}
    if given and (used := [f"{name} {value}" for name, value in options_of_rows.items() if value is not None]):
        raise BadInput(f"invalid options: got {used[0]} with {given[0]}, expected one of them; leave one out")
    if html and (dropped or domains):
        raise BadInput(f"invalid options: got --html with {given[0]}, expected one of them; leave one out")
    count = rows or (1 if row is not None else _PAGE_ROWS if html else _ROWS)
    if _has_documents(folder := Path(run)):
        _refuse_options(overrides, where, row)
        if given:
            return print_answer(_describe_corpus(folder, document, dropped, html), as_json)
        return print_answer(_show_documents(folder, run, step, count, html), as_json)
    flags = flags_of(run, overrides, where)
    if given:
        with show_wait("importing"):
            from orchestration.jobs import corpus_folder_of
        return print_answer(_describe_corpus(corpus_folder_of(flags), document, dropped, html), as_json)
    with show_wait("importing"):
        from orchestration.jobs import run_of
        from orchestration.terminal import inspect as inspection

    with show_wait("making the sequences"):
        found = inspection.inspect_step(run_of(flags), step, range(row or 0, (row or 0) + count))
    values = {"samples": [sample.plain() for sample in found.examples]}
    next_ = (flags.command("inspect", "--step", str(step + 1)),)
    if not html:
        return print_answer(CommandResult((inspection.render_examples(found.examples),), values, next_), as_json)
    from orchestration.terminal import html_page

    page = html_page.render_step(found, f"{run}, step {step:,}")
    return print_answer(_write_page(page, html, f"inspect-step-{step}.html", next_), as_json)


def _write_page(page: str, html: Path, default: str, next_: tuple[str, ...] = ()) -> CommandResult:
    """Write a page, and name its file."""
    from orchestration.terminal import html_page, views

    file = html_page.write_page(page, html, default)
    return CommandResult((views.lines([f"the page is {file}"]),), {"html": str(file)}, next_)


def _has_documents(folder: Path) -> bool:
    """Whether this is a directory of a corpus or of its text. Other arguments need no import of documents.py."""
    if not folder.is_dir():
        return False
    from orchestration.terminal import documents

    return documents.has_documents(folder)


def _show_documents(folder: Path, given: str, step: int, rows: int, html: Path | None) -> CommandResult:
    """`rows` documents of a directory, after the first `step * rows`."""
    from orchestration.terminal import documents

    with show_wait("reading the documents"):
        found = documents.read_documents(folder, step * rows, rows)
    next_ = (command("inspect", given, "--step", str(step + 1), "--rows", str(rows)),)
    if html:
        return _write_documents(found, folder, html, f"inspect-documents-{step}.html", next_)
    values = {"documents": [each.plain() for each in found]}
    return CommandResult((documents.render_documents(found),), values, next_)


def _write_documents(
    found: "Sequence[StoredDocument]", folder: Path, html: Path, default: str, next_: tuple[str, ...] = ()
) -> CommandResult:
    from orchestration.terminal import html_page

    return _write_page(html_page.render_documents_page(found, f"Documents of {folder.name}"), html, default, next_)


def _describe_corpus(folder: Path, document: str, dropped: str, html: Path | None) -> CommandResult:
    """A document of the corpus, the sample of its dropped documents, or its hosts."""
    from orchestration.terminal import documents
    from preprocessing.dropped import plain_dropped

    if document:
        one = documents.find_document(folder, document)
        if html:
            return _write_documents([one], folder, html, f"inspect-document-{one.key[:12]}.html")
        return CommandResult((documents.render_document(one),), {"document": one.plain()})
    if dropped:
        found, counts = documents.find_dropped(folder, dropped), documents.count_dropped(folder)
        plain = [plain_dropped(each) for each in found]
        return CommandResult((documents.render_dropped(found, counts),), {"dropped": plain})
    hosts = documents.find_domains(folder)
    return CommandResult((documents.render_domains(hosts),), {"domains": hosts})


def _refuse_options(overrides: Sequence[str] | None, where: RunOptions, row: int | None) -> None:
    """BadInput for values that only a recipe uses: a corpus directory has none."""
    given = {
        "--row": row,
        "--scale": where.scale,
        "--data": where.data,
        "--holdout-ratio": where.holdout_ratio,
        "--seed": where.seed,
    }
    used = [*(overrides or ()), *(name for name, value in given.items() if value not in ("", None, []))]
    if used:
        raise BadInput(f"invalid {used[0]}: got a corpus directory, expected a recipe or a run with it; leave it out")
