"""Values -> what a terminal shows: tables and trees, in one style. Nothing is computed here and nothing is printed."""

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
from preprocessing.manifest import Manifest
from training.optimizers import cycles
from training.tasks import SplitAvailability, TaskFile, TaskScore

if TYPE_CHECKING:
    from orchestration.launch import SubmittedJob

NAME, NUMBER, QUIET, GOOD, BAD = "bold cyan", "green", "dim", "green", "bold red"
SPLITS = ("train", "dev", "test")
COLUMN = 70  # where the numbers of a tree stand
KIND = 15  # most letters of a kind of task in a table; the view of one task has all of them


def recipes(all_of_them: Sequence[Recipe]) -> Table:
    """The family: one line per recipe."""
    table = _table("recipe", "year", "masking", "objective", "parameters", "tokens", title="The family")
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
    """One recipe as a tree, with the parameters of each part of its net."""
    net = reports.build_tree(one)
    tree = Tree(
        Text.assemble((one.name, NAME), "  ", one.paper, "  ", (f"hash {one.hash[:12]}", QUIET)), guide_style=QUIET
    )
    data = tree.add("data")
    data.add(f"text of {one.data.corpus}")
    data.add(one.data.tokenizer.describe())
    data.add(f"packing: {one.data.packing.describe()}")
    objective = tree.add("objective")
    objective.add(f"masking: {one.masking.describe()}; {one.objective.describe()}")
    if one.data.static_masks:
        objective.add(f"static masking, {one.data.static_masks} copies")
    objective.add(f"predicts {' + '.join(reports.losses(one))}")
    below = tree.add(_counted(f"architecture: {one.model.describe()}", net.parameters, depth=1))
    for part in net.parts:
        _add_node(below, part, depth=2)
    training = tree.add("training")
    for phase in one.phases:
        rows = f"{phase.global_batch_size:,} rows of at most {phase.seq_length:,} tokens"
        if phase.batch_unit == "token":
            rows = (
                f"as many rows as have {phase.global_batch_size * phase.seq_length:,} tokens, none more than "
                f"{phase.seq_length:,}"
            )
        training.add(f"{phase.steps:,} steps of {rows}")
    training.add(
        f"{reports.format_number(one.num_tokens)} tokens, "
        f"{reports.format_number(reports.training_flops(one))} floating point operations"
    )
    optim = one.optimizer
    training.add(
        f"{optim.describe()}: learning rate {optim.learning_rate:g} after {optim.warmup_steps:,} steps of warm-up, "
        f"then {optim.describe_schedule()}; weight decay {optim.weight_decay:g}"
    )
    for cycle in cycles(optim, one.phases)[1:]:
        training.add(
            f"from step {cycle.begin:,} on anew: learning rate {cycle.learning_rate:g} after {cycle.warmup_steps:,} "
            f"steps of warm-up"
        )
    if one.reported_results:
        _add_figures(tree.add("reported results"), one.reported_results)
    return tree


def _add_figures(tree: Tree, figures: Mapping[str, Any]) -> None:
    """What a paper says, as the recipe has it."""
    for name, figure in figures.items():
        if name == "also":
            for of, others in figure.items():
                _add_figures(tree.add(f"also, of {of}"), others)
        elif isinstance(figure, Mapping):
            tree.add(f"{name}: {', '.join(f'{of} {value}' for of, value in figure.items())}")
        else:
            tree.add(f"{name}: {figure:,}" if isinstance(figure, int) else f"{name}: {figure}")


def _add_node(tree: Tree, node: Node, depth: int) -> None:
    branch = tree.add(_counted(f"{node.name}  {node.shape}".rstrip(), node.parameters, depth))
    for part in node.parts:
        _add_node(branch, part, depth + 1)


def _counted(label: str, parameters: int, depth: int) -> Text:
    width = max(1, COLUMN - 4 * depth)
    dots = " " * (width - len(label))
    return Text.assemble(label, dots, "  ", (f"{parameters:>13,}", NUMBER))


def difference(ours: Recipe, theirs: Recipe, lines: Iterable[str]) -> Group:
    """How a second recipe differs from a first, as its abstract would say it."""
    head = Text.assemble((theirs.name, NAME), f"  {theirs.paper}\n", ("differs from ", QUIET), (ours.name, NAME))
    return Group(head, *(Text(f"  * {line}") for line in lines))


def checked(one: Recipe, num_workers: int, cluster: str) -> Text:
    """The line of `sesame check` where nothing is wrong."""
    size = f"{one.num_steps:,} steps, {reports.format_number(one.num_tokens)} tokens"
    where = f"{num_workers} worker{'s' * (num_workers != 1)} of cluster {cluster}"
    return Text.assemble(("ok  ", GOOD), (one.name, NAME), f"  {size}, {where}  ", (f"hash {one.hash[:12]}", QUIET))


def card(manifest: Manifest) -> Group:
    """The data card of a corpus: what is in it, what was dropped and why."""
    splits = _table("split", "documents", "tokens", "shards", title=f"corpus {manifest.name}  {manifest.digest[:12]}")
    for column in splits.columns[1:]:
        column.justify = "right"
    for split, count in manifest.splits.items():
        _add(splits, split, f"{count['rows']:,}", Text(f"{count['tokens']:,}", NUMBER), f"{count['shards']:,}")
    ledger = manifest.ledger
    drops = _table("documents", "", "bytes", title="")
    drops.columns[0].justify = drops.columns[2].justify = "right"
    _add(drops, f"{ledger.seen.documents:,}", "seen", f"{ledger.seen.bytes:,}")
    _add(drops, Text(f"{ledger.kept.documents:,}", NUMBER), "kept", f"{ledger.kept.bytes:,}")
    for reason, dropped in sorted(ledger.dropped.items()):
        label = f"dropped: {reason}" if dropped.bytes >= 0 else reason  # what a repair adds
        _add(drops, f"{dropped.documents:,}", label, f"{dropped.bytes:,}")
    return Group(splits, drops)


def findings(found: Iterable[HealthCheck]) -> Table:
    """What the doctor saw, with remedies."""
    table = _table("", "looked at", "found", "remedy")
    for finding in found:
        mark = (
            Text("ok", GOOD)
            if not finding.remedy
            else Text("no" if finding.fatal else "--", BAD if finding.fatal else "yellow")
        )
        _add(table, mark, finding.what, finding.found, finding.remedy)
    return table


def submitted(found: "Sequence[SubmittedJob]") -> Table | Text:
    """Jobs of a cluster; of one alone, its command too."""
    if not found:
        return Text("no job was sent to this cluster")
    table = _table("job", "status", "began", "took", "said")
    for one in found:
        began = datetime.fromtimestamp(one.began).isoformat(" ", "seconds") if one.began else ""
        took = str(timedelta(seconds=round(one.ended - one.began))) if one.began and one.ended else ""
        mark = {"SUCCEEDED": GOOD, "FAILED": BAD}.get(one.status, "yellow")
        said = one.command if len(found) == 1 and not one.message else one.message.partition("\n")[0][:200]
        _add(table, Text(one.id, NAME), Text(one.status, mark), began, took, said)
    return table


def trained(folder: Path, result: Mapping[str, Any]) -> Group:
    """How a run ended: its last figures."""
    head = Text.assemble(
        ("trained  ", GOOD), f"{result['step']:,} steps, {result['tokens']:,} tokens  ", (str(folder), QUIET)
    )
    table = _table("held-out text", "")
    table.columns[1].justify = "right"
    for name, value in sorted(result["evaluation"].items()):
        _add(table, name, "-" if value is None else f"{value:.4f}")
    return Group(head, table) if result["evaluation"] else Group(head)


def scores(rows: Sequence[Mapping[str, str]]) -> Table | Text:
    """Scores of downstream tasks, a row each."""
    if not rows:
        return Text("no downstream scores: the recipe names no eval_tasks, or what they need is not at hand")
    title = "downstream scores: median, deviation over the seeds, 95 % confidence interval"
    tested = "; gain: difference of means; p: paired t test over seeds and questions" if "p" in rows[0] else ""
    table = _table(*rows[0], title=f"{title}{tested}; shares in percent")
    for row in rows:
        _add(table, *row.values())
    return table


def examples(scores: Sequence[TaskScore]) -> Text:
    """What a net says before its training and after it, a line each."""
    lines = []
    for score in scores:
        for start, said in (("random", "before"), ("pretrained", "after")):
            if start in score.examples:
                lines.append(f"{reports.named(score)}, {said} pretraining:")
                lines += [f"  {line}" for line in score.examples[start].splitlines()]
    return Text("\n".join(lines))


def samples(found: Mapping[str, Sequence[str]], width: int = 240) -> Text:
    """What a net wrote before its training and after it, the beginning of each text in a paragraph."""
    lines = []
    for when, texts in found.items():
        lines.append(f"what it writes {when} pretraining:")
        short = (" ".join(text.split()) for text in texts)
        lines += [f"  {text[:width]}{' ...' * (len(text) > width)}" for text in short]
    return Text("\n".join(lines))


def tables(found: Iterable[Comparison]) -> Table:
    """The tables of the literature: one line each."""
    table = _table("table", "of", "what it compares")
    for one in found:
        _add(table, Text(one.name, NAME), one.paper.split(",")[0], one.title)
    return table


def tasks(of: Sequence[TaskFile], found: Mapping[str, Mapping[str, SplitAvailability]]) -> Group:
    """Downstream tasks, one line each, with their descriptions, or with the rows of each split if `found` has them."""
    table = _table("task", "kind", "metric", *(("train", "dev", "test", "others") if found else ("description",)))
    name, kind, *_ = table.columns
    name.no_wrap, kind.overflow, kind.max_width = True, "ellipsis", KIND
    for one in of:
        said: list[str | Text] = [one.description]
        if there := found.get(one.name):
            others = [split for split in there if split not in SPLITS]
            said = [_rows(there.get(split)) for split in SPLITS]
            said.append(f"{sum(there[split].is_there for split in others)} of {len(others)}" if others else "")
        _add(table, Text(one.name, NAME), one.task.kind, one.metric, *said)
    if not found:
        return Group(table)
    for column in table.columns[3:]:
        column.justify = "right"
    table.padding = 0, 1, 0, 0  # names of tasks and of metrics are long
    legend = "rows of each split; -: not there, *: without labels, !: malformed (below)"
    return Group(table, Text(legend, QUIET), *(Text(line, BAD) for line in reports.find_faults(found)))


def _rows(one: SplitAvailability | None) -> Text:
    if one is None or not one.is_there:
        return Text("" if one is None else "-", QUIET)
    if one.wrong:
        return Text("!", BAD)
    marks = ("*" if one.rows and not one.labelled else "") + ("!" if one.malformed else "")
    return Text(f"{one.rows:,}{marks}", NUMBER)


def task(one: TaskFile, found: Mapping[str, SplitAvailability] | None) -> Group:
    """A downstream task: its description, its files and the grids of papers."""
    tree = Tree(Text.assemble((one.name, NAME), f"  {one.description}"), guide_style=QUIET)
    for said in (one.citation, f"license: {one.license}", one.note):
        if said:
            tree.add(Text(said))
    tree.add(Text(f"{one.task.kind}: {', '.join(one.task.metrics)}; {_way(one)}"))
    files = tree.add("files")
    for name, split in one.files.items():
        there = found[name] if found else SplitAvailability(is_there=False)
        where = there.file or " or ".join(path for each in (split, *split.fallbacks) for path in each.paths)
        count = _rows(there).append(" ") if found else Text()
        files.add(Text.assemble(f"{name}: ", count, (where, QUIET)))
    grids = tree.add("grids") if one.grids else tree
    for name, grid in one.grids.items():
        grids.add(Text(f"{name}: {grid.describe()}"))
    faults = reports.find_faults({one.name: found} if found else {})
    return Group(tree, *(Text(line, BAD) for line in faults))


def _way(one: TaskFile) -> str:
    """How a model is scored, and the limit of its sequences."""
    if one.task.way == "tuned":
        return f"fine-tuned on sequences of at most {one.max_seq_length} tokens"
    return (
        "scored without training, on sequences as long as the model's"
        if one.task.way == "scored"
        else "scored on generated text"
    )


def keys(parts: Sequence[KeyGroup]) -> Group:
    """Parts with their keys in tables; a part at two places with the same keys is shown once."""
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
    """A line per part of recipe, cluster, corpus and task files: its meaning, and its kinds."""
    table = _table("part", "meaning", "kinds")
    for path, found in _by_path(parts).items():
        kinds = ", ".join(dict.fromkeys(part.kind for part in found if part.kind))
        meaning = next((entry.key.doc for entry in entries_at(path)), found[0].doc)
        _add(table, Text(path or "(recipe)", NAME), meaning, Text(kinds, NUMBER))
    return Group(table, Text("\nsesame keys PART shows its keys, sesame keys KEY one key\n"))


def _by_path(parts: Sequence[KeyGroup]) -> dict[str, list[KeyGroup]]:
    found: dict[str, list[KeyGroup]] = {}
    for part in parts:
        found.setdefault(part.path, []).append(part)
    return found


def entries(found: Sequence[Entry]) -> Group:
    """Each key as a whole: path, meaning, type, default, allowed values, and the kinds of its value."""
    return Group(*map(_entry, found))


def translation(theirs: str, ours: Sequence[str]) -> Text:
    """Our names for a name of another library."""
    return Text(f"{theirs} is called {' or '.join(ours)} in Sesame\n")


def _place(path: str) -> Text:
    """The key whose value is a part."""
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
    """Path, kind and docstring of a part, of one part alone the whole docstring."""
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


def lines(said: Iterable[str]) -> Group:
    """Plain lines."""
    return Group(*(Text(line) for line in said))


def _table(*columns: str, title: str = "") -> Table:
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style=QUIET
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _add(table: Table, *cells: str | Text) -> None:
    """A row of literal text: rich would read [CLS] as a style."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
