"""Tables and trees for the terminal, in one style, made from values. This module computes and prints nothing."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from orchestration import reports
from orchestration.config import Entry, KeyGroup, Recipe, entries_at
from orchestration.reports import Node
from orchestration.reports.ablations import Ablation as Comparison
from orchestration.terminal.doctor import HealthCheck
from preprocessing.manifest import Ledger, Manifest
from training.evaluation.tasks import SplitAvailability, TaskFile, TaskScore
from training.optimizers import cycles

if TYPE_CHECKING:
    from orchestration.jobs import RunSummary
    from orchestration.launch import SubmittedJob

NAME, NUMBER, QUIET, GOOD, BAD = "bold cyan", "green", "dim", "green", "bold red"
SPLITS = ("train", "dev", "test")
COLUMN = 70  # column of the numbers in a tree
KIND = 15  # maximum width of the kind of a task in a table; the view of one task shows the whole name


def recipes(all_of_them: Sequence[Recipe]) -> Table:
    """The table of all recipes, one per line."""
    table = _table("recipe", "year", "masking", "objective", "parameters", "tokens", title="Recipes")
    table.columns[4].justify = table.columns[5].justify = "right"
    for one in all_of_them:
        cells = reports.row(one)
        _add(
            table,
            Text(one.name, NAME),
            *(str(cells[column]) for column in ("year", "masking", "objective")),
            Text(f"{cells['parameters']:,}", NUMBER),
            reports.format_number(one.num_tokens),
        )
    return table


def recipe(one: Recipe) -> Tree:
    """One recipe as a tree, with the parameters of each part of its model."""
    net = reports.build_tree(one)
    tree = Tree(
        Text.assemble((one.name, NAME), "  ", one.paper, "  ", (f"hash {one.hash[:12]}", QUIET)), guide_style=QUIET
    )
    data = tree.add("data")
    data.add(f"text of {one.data.corpus}{_describe_mixture(one.data.mixture)}")
    data.add(one.data.tokenizer.describe())
    data.add(f"packing: {one.data.packing.describe()}")
    objective = tree.add("objective")
    objective.add(f"masking: {one.masking.describe()}; {one.objective.describe()}")
    if one.data.static_masks:
        objective.add(f"static masking, {one.data.static_masks} copies")
    objective.add(f"predicts {' + '.join(reports.losses(one))}")
    below = tree.add(_format_count(f"architecture: {one.model.describe()}", net.parameters, depth=1))
    for part in net.parts:
        _add_node(below, part, depth=2)
    training = tree.add("training")
    for phase in one.phases:
        batch = f"{phase.global_batch_size:,} sequences of at most {phase.seq_length:,} tokens"
        if phase.batch_unit == "token":
            batch = (
                f"{phase.global_batch_size * phase.seq_length:,} tokens, in sequences of at most "
                f"{phase.seq_length:,} tokens"
            )
        training.add(f"{phase.steps:,} steps of {batch}{_describe_mixture(phase.mixture)}")
    training.add(
        f"{reports.format_number(one.num_tokens)} tokens, "
        f"{reports.format_number(reports.training_flops(one))} floating-point operations"
    )
    optim = one.optimizer
    training.add(
        f"{optim.describe()}: learning rate {optim.learning_rate:g} after {optim.warmup_steps:,} steps of warm-up, "
        f"then {optim.describe_schedule()}; weight decay {optim.weight_decay:g}"
    )
    for cycle in cycles(optim, one.phases)[1:]:
        training.add(
            f"from step {cycle.begin:,}: learning rate {cycle.learning_rate:g} after {cycle.warmup_steps:,} steps of "
            "warm-up"
        )
    if one.reported_results:
        _add_figures(tree.add("reported results"), one.reported_results)
    return tree


def _describe_mixture(mixture: Mapping[str, float]) -> str:
    """
    >>> _describe_mixture({"web": 3, "wiki": 1.0}), _describe_mixture({})
    (', 75 % web, 25 % wiki', '')
    """
    total = sum(mixture.values())
    return "".join(f", {100 * weight / total:.4g} % {name}" for name, weight in mixture.items() if weight)


def _add_figures(tree: Tree, figures: Mapping[str, Any]) -> None:
    """Add the results of the paper, as the recipe quotes them."""
    for name, figure in figures.items():
        if name == "also":
            for of, others in figure.items():
                _add_figures(tree.add(f"also, for {of}"), others)
        elif isinstance(figure, Mapping):
            tree.add(f"{name}: {', '.join(f'{of} {value}' for of, value in figure.items())}")
        else:
            tree.add(f"{name}: {figure:,}" if isinstance(figure, int) else f"{name}: {figure}")


def _add_node(tree: Tree, node: Node, depth: int) -> None:
    branch = tree.add(_format_count(f"{node.name}  {node.shape}".rstrip(), node.parameters, depth))
    for part in node.parts:
        _add_node(branch, part, depth + 1)


def _format_count(label: str, parameters: int, depth: int) -> Text:
    width = max(1, COLUMN - 4 * depth)
    dots = " " * (width - len(label))
    return Text.assemble(label, dots, "  ", (f"{parameters:>13,}", NUMBER))


def difference(ours: Recipe, theirs: Recipe, lines: Iterable[str]) -> Group:
    """The differences of the recipe `theirs` from the recipe `ours`, a sentence per line."""
    head = Text.assemble((theirs.name, NAME), f"  {theirs.paper}\n", ("differs from ", QUIET), (ours.name, NAME))
    return Group(head, *(Text(f"  * {line}") for line in lines))


def format_check(one: Recipe, num_workers: int, cluster: str, *, is_estimate: bool = False) -> Text:
    """The line that `sesame check` prints for a valid recipe; with `is_estimate`, its steps are estimated."""
    size = f"{'about ' * is_estimate}{one.num_steps:,} steps, {reports.format_number(one.num_tokens)} tokens"
    where = f"{num_workers} worker{'s' * (num_workers != 1)} of cluster {cluster}"
    return Text.assemble(("ok  ", GOOD), (one.name, NAME), f"  {size}, {where}  ", (f"hash {one.hash[:12]}", QUIET))


def card(manifest: Manifest) -> Group:
    """A short data card of a corpus: its splits, and the dropped documents by reason."""
    splits = _table("split", "documents", "tokens", "shards", title=f"corpus {manifest.name}  {manifest.digest[:12]}")
    for column in splits.columns[1:]:
        column.justify = "right"
    for split, count in manifest.splits.items():
        _add(splits, split, f"{count['rows']:,}", Text(f"{count['tokens']:,}", NUMBER), f"{count['shards']:,}")
    return Group(splits, _ledger(manifest.ledger))


def documents(name: str, digest: str, ledger: Ledger) -> Group:
    """The cleaned documents of a corpus without token IDs: how many were kept, and the dropped ones by reason."""
    return Group(Text(f"documents of {name}  {digest[:12]}"), _ledger(ledger))


def _ledger(ledger: Ledger) -> Table:
    """Documents and bytes of a text: seen, kept, and dropped by reason."""
    drops = _table("documents", "", "bytes", title="")
    drops.columns[0].justify = drops.columns[2].justify = "right"
    _add(drops, f"{ledger.seen.documents:,}", "seen", f"{ledger.seen.bytes:,}")
    _add(drops, Text(f"{ledger.kept.documents:,}", NUMBER), "kept", f"{ledger.kept.bytes:,}")
    for reason, dropped in sorted(ledger.dropped.items()):
        label = f"dropped: {reason}" if dropped.bytes >= 0 else reason  # a repair of text adds bytes
        _add(drops, f"{dropped.documents:,}", label, f"{dropped.bytes:,}")
    return drops


def findings(checks: Iterable[HealthCheck]) -> Table:
    """The results of `sesame doctor`, with remedies."""
    table = _table("", "check", "result", "remedy")
    for finding in checks:
        mark = (
            Text("ok", GOOD)
            if not finding.remedy
            else Text("no" if finding.fatal else "--", BAD if finding.fatal else "yellow")
        )
        _add(table, mark, finding.what, finding.found, finding.remedy)
    return table


def list_jobs(jobs: "Sequence[SubmittedJob]") -> Table | Text:
    """The jobs of a cluster, with the last message of each; a single job without a message shows its command."""
    if not jobs:
        return Text("no jobs were submitted to this cluster")
    table = _table("job", "status", "started", "duration", "message")
    for one in jobs:
        began = datetime.fromtimestamp(one.began).isoformat(" ", "seconds") if one.began else ""
        until = one.ended or (time.time() if one.status == "RUNNING" else 0)
        took = str(timedelta(seconds=round(until - one.began))) if one.began and until else ""
        mark = {"SUCCEEDED": GOOD, "FAILED": BAD}.get(one.status, "yellow")
        message = one.command if len(jobs) == 1 and not one.message else one.message.partition("\n")[0][:200]
        _add(table, Text(one.id, NAME), Text(one.status, mark), began, took, message)
    return table


def summarize_training(folder: Path, result: Mapping[str, Any]) -> Group:
    """The last evaluation of a finished run."""
    head = Text.assemble(
        ("trained  ", GOOD), f"{result['step']:,} steps, {result['tokens']:,} tokens  ", (str(folder), QUIET)
    )
    table = _table("held-out text", "")
    table.columns[1].justify = "right"
    for name, value in sorted(result["evaluation"].items()):
        _add(table, name, "-" if value is None else reports.format_decimal(value, 4))
    return Group(head, table) if result["evaluation"] else Group(head)


def runs(found: "Sequence[RunSummary]") -> Table | Group | Text:
    """The runs of an output directory, one per line, and why a run is damaged."""
    if not found:
        return Text("no runs")
    table = _table("run", "state", "step", "loss", "held-out loss", "scores", "changed", "MLflow run")
    for column in table.columns[2:5]:
        column.justify = "right"
    table.columns[0].no_wrap = True
    for one in found:
        mark = {"finished": GOOD, "damaged": BAD}.get(one.state, "yellow")
        _add(
            table,
            Text(one.name, NAME),
            Text(one.state, mark),
            f"{one.step:,}/{one.num_steps:,}" if one.num_steps else "",
            *("" if value is None else reports.format_decimal(value, 3) for value in (one.loss, one.held_out_loss)),
            _shorten(list(map(str, one.scores)), 4),
            datetime.fromtimestamp(one.changed).isoformat(" ", "minutes") if one.changed else "",
            Text(one.mlflow_run[:8], QUIET),
        )
    problems = [Text(f"{one.name}: {one.problem}", BAD) for one in found if one.problem]
    return Group(table, *problems) if problems else table


def _shorten(words: Sequence[str], most: int) -> str:
    """The first `most` words, and the number of the others.

    >>> _shorten(["a", "b"], 2), _shorten(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def scores(rows: Sequence[Mapping[str, str]]) -> Table | Text:
    """A table of the scores of downstream tasks, one score per row."""
    if not rows:
        return Text("no downstream scores: the recipe has no eval_tasks, or the data of these tasks is missing")
    title = "downstream scores: median +- standard deviation over the seeds [95 % confidence interval]"
    tested = "; gain: difference of the means; p: paired t test over seeds and examples" if "p" in rows[0] else ""
    table = _table(*rows[0], title=f"{title}{tested}; accuracies and other fractions are in percent")
    for column, header in zip(table.columns, rows[0], strict=True):
        column.min_width = len(header)
    table.columns[0].no_wrap = True  # a name of a task is copied to --tasks
    table.padding = 0, 1, 0, 0
    for row in rows:
        _add(table, *row.values())
    return table


def comparison(names: Sequence[str], rows: Sequence[Mapping[str, str]], coverage: str) -> Group:
    """The differences of models from a baseline, one task and metric per row, with notes below the table.

    The name of a task is on the row of its main metric; other metrics are indented. Cells fold and are never cut.
    """
    columns = [name for name in (rows[0] if rows else ()) if name not in ("task", "metric", "note")]
    table = _table("task and metric", *columns, title=f"{' and '.join(names[1:])}, compared with {names[0]}")
    table.columns[0].min_width = 12
    table.padding = 0, 1, 0, 0
    task, notes = "", dict[str, None]()
    for row in rows:
        label = f"  {row['metric']}" if row["task"] == task else f"{row['task']}: {row['metric']}"
        task = row["task"]
        cells = [Text(row[name], _style_of_difference(row[name])) for name in columns]
        _add(table, Text(label, NAME if not label.startswith(" ") else ""), *cells)
        notes |= {f"{task}: {row['note']}": None} if row.get("note") else {}
    legend = Text(f"{reports.COMPARISON_LEGEND}; fractions in percent. {coverage}", QUIET)
    return Group(table, *map(Text, notes), legend)


def _style_of_difference(words: str) -> str:
    """The style of a cell that says which model is better."""
    return GOOD if words.endswith(" better") else BAD if words.endswith(" worse") else ""


def examples(scores: Sequence[TaskScore]) -> Text:
    """The answers of a model to examples of tasks, before and after pretraining, one per line."""
    lines = []
    for score in scores:
        for start, when in (("random", "before"), ("pretrained", "after")):
            if start in score.examples:
                lines.append(f"{reports.name_score(score)}, {when} pretraining:")
                lines += [f"  {line}" for line in score.examples[start].splitlines()]
    return Text("\n".join(lines))


def samples(generated: Mapping[str, Sequence[str]], width: int = 240) -> Text:
    """The beginning of each text that a model generated before and after pretraining, one per line."""
    lines = []
    for when, texts in generated.items():
        lines.append(f"generated {when} pretraining:")
        short = (" ".join(text.split()) for text in texts)
        lines += [f"  {text[:width]}{' ...' * (len(text) > width)}" for text in short]
    return Text("\n".join(lines))


def tables(ablations: Iterable[Comparison]) -> Table:
    """The ablation tables of papers, one per line."""
    table = _table("table", "paper", "title")
    for one in ablations:
        _add(table, Text(one.name, NAME), one.paper.split(",")[0], one.title)
    return table


def tasks(of: Sequence[TaskFile], found: Mapping[str, Mapping[str, SplitAvailability]]) -> Group:
    """Downstream tasks, one per line, with descriptions, or with the examples of each split if `found` has them."""
    table = _table("task", "kind", "metric", *(("train", "dev", "test", "others") if found else ("description",)))
    name, kind, *_ = table.columns
    name.no_wrap, kind.overflow, kind.max_width = True, "ellipsis", KIND
    for one in of:
        cells: list[str | Text] = [one.description]
        if there := found.get(one.name):
            others = [split for split in there if split not in SPLITS]
            cells = [_count_examples(there.get(split)) for split in SPLITS]
            cells.append(f"{sum(there[split].is_there for split in others)} of {len(others)}" if others else "")
        _add(table, Text(one.name, NAME), one.task.kind, one.metric, *cells)
    if not found:
        return Group(table)
    for column in table.columns[3:]:
        column.justify = "right"
    table.padding = 0, 1, 0, 0  # saves space: the names of tasks and metrics are long
    legend = "examples per split; -: no file, *: without labels, !: malformed (see below)"
    return Group(table, Text(legend, QUIET), *(Text(line, BAD) for line in reports.find_faults(found)))


def _count_examples(one: SplitAvailability | None) -> Text:
    if one is None or not one.is_there:
        return Text("" if one is None else "-", QUIET)
    if one.wrong:
        return Text("!", BAD)
    marks = ("*" if one.rows and not one.labelled else "") + ("!" if one.malformed else "")
    return Text(f"{one.rows:,}{marks}", NUMBER)


def task(one: TaskFile, found: Mapping[str, SplitAvailability] | None) -> Group:
    """A downstream task: its description, its files and the grids of papers."""
    tree = Tree(Text.assemble((one.name, NAME), f"  {one.description}"), guide_style=QUIET)
    for line in (one.citation, f"license: {one.license}", one.note):
        if line:
            tree.add(Text(line))
    tree.add(Text(f"{one.task.kind}: {', '.join(one.task.metrics)}; {_way(one)}"))
    files = tree.add("files")
    for name, split in one.files.items():
        there = found[name] if found else SplitAvailability(is_there=False)
        where = there.file or " or ".join(split.displayed_paths)
        count = _count_examples(there).append(" ") if found else Text()
        files.add(Text.assemble(f"{name}: ", count, (where, QUIET)))
    grids = tree.add("grids") if one.grids else tree
    for name, grid in one.grids.items():
        grids.add(Text(f"{name}: {grid.describe()}"))
    faults = reports.find_faults({one.name: found} if found else {})
    return Group(tree, *(Text(line, BAD) for line in faults))


def _way(one: TaskFile) -> str:
    """How a model is scored on a task, and the limit of the sequence length."""
    if one.task.way == "tuned":
        return f"fine-tuned on sequences of at most {one.max_seq_length} tokens"
    return (
        "scored without fine-tuning, at the sequence length of the model"
        if one.task.way == "scored"
        else "scored on generated text"
    )


def keys(parts: Sequence[KeyGroup]) -> Group:
    """Each part with a table of its keys. A part that occurs in two places with equal keys is shown once."""
    places: dict[tuple[Any, ...], list[KeyGroup]] = {}
    for part in parts:
        places.setdefault((part.kind, part.doc, part.keys), []).append(part)
    every = [key for part in parts for key in part.keys]
    widths = max([5, *(2 + len(key.name) for key in every)]), 14, max([8, *(len(key.default) for key in every)])
    shown: list[RenderableType] = []
    headed = set[str]()
    for same in places.values():
        shown += [_place(part.path) for part in same if part.path not in headed and entries_at(part.path)]
        headed |= {part.path for part in same}
        shown += [_head(same, alone=len(parts) == 1), _keys(same[0], widths), Text()]
    return Group(*shown)


def key_index(parts: Sequence[KeyGroup]) -> Group:
    """The parts of recipe, cluster, corpus and task files, one per line, with meaning and kinds."""
    table = _table("part", "meaning", "kinds")
    for path, found in _by_path(parts).items():
        kinds = ", ".join(dict.fromkeys(part.kind for part in found if part.kind))
        meaning = next((entry.key.doc for entry in entries_at(path)), found[0].doc)
        _add(table, Text(path or "(recipe)", NAME), meaning, Text(kinds, NUMBER))
    return Group(table, Text("\n`sesame keys PART` shows the keys of a part, `sesame keys KEY` one key\n"))


def _by_path(parts: Sequence[KeyGroup]) -> dict[str, list[KeyGroup]]:
    found: dict[str, list[KeyGroup]] = {}
    for part in parts:
        found.setdefault(part.path, []).append(part)
    return found


def entries(found: Sequence[Entry]) -> Group:
    """All facts about each key: path, meaning, type, default, allowed values, and the kinds of its value."""
    return Group(*map(_entry, found))


def translation(theirs: str, ours: Sequence[str]) -> Text:
    """The line that gives Sesame's names for a name of another library."""
    return Text(f"{theirs} is called {' or '.join(ours)} in Sesame\n")


def _place(path: str) -> Text:
    """The facts about the key that contains a part."""
    return Text.assemble((f"{path}\n", NAME), *(_fact(*fact) for fact in _facts(entries_at(path)[0])))


def _entry(entry: Entry) -> Text:
    kinds = f"  kind {', '.join(entry.kinds)}" if entry.kinds else ""
    return Text.assemble((entry.path, NAME), (f"{kinds}\n", NUMBER), *(_fact(*fact) for fact in _facts(entry)))


def _facts(entry: Entry) -> list[tuple[str, str]]:
    key = entry.key
    facts = [("meaning", key.doc), ("type", key.type), ("default", key.default or "required")]
    return [*facts, ("values", ", ".join(key.choices))] if key.choices else facts


def _fact(name: str, value: str) -> str:
    return f"  {name:<9}{value}\n"


def _head(same: Sequence[KeyGroup], alone: bool) -> Text:
    """Path, kind and first sentence of the docstring of a part; the whole docstring if it is the only part."""
    part = same[0]
    paths = ", ".join(each.path or "(recipe)" for each in same)
    kind = f"  kind {part.kind}" if part.kind else ""
    within = f", in {' or '.join(part.within)}" if part.within else ""
    details = f"\n\n{part.details}\n" if alone and part.details else ""
    return Text.assemble((paths, NAME), (kind + within, NUMBER), f"\n{part.doc}{details}")


def _keys(part: KeyGroup, widths: Sequence[int]) -> Table | Text:
    if not part.keys:
        return Text("  no keys", QUIET)
    table = _table("  key", "type", "default", "meaning")
    for column, width in zip(table.columns, widths, strict=False):
        column.width = width
    for key in part.keys:
        doc = f"{key.doc} One of {', '.join(key.choices)}." if key.choices else key.doc
        _add(table, f"  {key.name}", Text(key.type, QUIET), Text(key.default or "required", NUMBER), doc)
    return table


def lines(texts: Iterable[str]) -> Group:
    """Plain lines."""
    return Group(*(Text(line) for line in texts))


def _table(*columns: str, title: str = "") -> Table:
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style=QUIET
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _add(table: Table, *cells: str | Text) -> None:
    """Add a row of literal text. In a plain string, rich would interpret [CLS] as a style."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
