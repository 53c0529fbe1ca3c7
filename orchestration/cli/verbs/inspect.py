"""sesame inspect"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from orchestration.cli import options
from orchestration.cli.groups import RunOptions
from orchestration.cli.shared import command, flags_of
from orchestration.terminal import CommandResult, print_answer, show_wait
from preprocessing.errors import BadInput

_ROWS: Final = 4


def inspect(
    run: options.RunRecipeOrCorpus,
    overrides: options.Overrides = None,
    *,
    step: Annotated[int, typer.Option(metavar="N", min=0, help="Show the batch of this step.")] = 0,
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="Show N sequences.")] = _ROWS,
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
    if given and (step or rows != _ROWS):
        option = f"--step {step}" if step else f"--rows {rows}"
        raise BadInput(f"invalid options: got {option} with {given[0]}, expected one of them; leave one out")
    if _has_documents(folder := Path(run)):
        _refuse_options(overrides, where)
        answer = _describe_corpus(folder, document, dropped) if given else _show_documents(folder, run, step, rows)
        return print_answer(answer, as_json)
    flags = flags_of(run, overrides, where)
    if given:
        with show_wait("importing"):
            from orchestration.jobs import corpus_folder_of
        return print_answer(_describe_corpus(corpus_folder_of(flags), document, dropped), as_json)
    with show_wait("importing"):
        from orchestration.jobs import run_of
        from orchestration.terminal import inspect as inspection

    with show_wait("making the sequences"):
        found = inspection.decode_examples(run_of(flags), step, rows)
    values = {"samples": [sample.plain() for sample in found]}
    next_ = (flags.command("inspect", "--step", str(step + 1)),)
    return print_answer(CommandResult((inspection.render_examples(found),), values, next_), as_json)


def _has_documents(folder: Path) -> bool:
    """Whether this is a directory of a corpus or of its text. Other arguments need no import of documents.py."""
    if not folder.is_dir():
        return False
    from orchestration.terminal import documents

    return documents.has_documents(folder)


def _show_documents(folder: Path, given: str, step: int, rows: int) -> CommandResult:
    """`rows` documents of a directory, after the first `step * rows`."""
    from orchestration.terminal import documents

    with show_wait("reading the documents"):
        found = documents.read_documents(folder, step * rows, rows)
    next_ = (command("inspect", given, "--step", str(step + 1), "--rows", str(rows)),)
    values = {"documents": [each.plain() for each in found]}
    return CommandResult((documents.render_documents(found),), values, next_)


def _describe_corpus(folder: Path, document: str, dropped: str) -> CommandResult:
    """A document of the corpus, the sample of its dropped documents, or its hosts."""
    from orchestration.terminal import documents
    from preprocessing.dropped import plain_dropped

    if document:
        one = documents.find_document(folder, document)
        return CommandResult((documents.render_document(one),), {"document": one.plain()})
    if dropped:
        found, counts = documents.find_dropped(folder, dropped), documents.count_dropped(folder)
        plain = [plain_dropped(each) for each in found]
        return CommandResult((documents.render_dropped(found, counts),), {"dropped": plain})
    hosts = documents.find_domains(folder)
    return CommandResult((documents.render_domains(hosts),), {"domains": hosts})


def _refuse_options(overrides: Sequence[str] | None, where: RunOptions) -> None:
    """BadInput for values that only a recipe uses: a corpus directory has none."""
    given = {"--scale": where.scale, "--data": where.data, "--holdout-ratio": where.holdout_ratio, "--seed": where.seed}
    used = [*(overrides or ()), *(name for name, value in given.items() if value not in ("", None, []))]
    if used:
        raise BadInput(f"invalid {used[0]}: got a corpus directory, expected a recipe or a run with it; leave it out")
