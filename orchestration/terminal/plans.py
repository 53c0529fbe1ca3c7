"""Views of a plan: memory by item, time by part, cost, and faster layouts."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestration.planning import (
    CALIBRATED,
    ComparedRun,
    ComputeOptimum,
    CostedLayout,
    Optimum,
    RunEstimate,
    TimedPrediction,
    format_bytes,
    format_duration,
)

MEMORY = {  # items of the memory (planning.DeviceMemory)
    "weights": "weights",
    "gradients": "gradients of weights",
    "master": "float32 master weights",
    "optimizer": "optimizer states",
    "permanent_buffers": "permanent buffers",
    "gathered": "gathered weights (ZeRO-3)",
    "buckets": "gradient buckets",
    "activations": "activations",
    "first_stage_table": "token table of the first stage",
    "head_inputs": "hidden states at the output heads",
    "logit_slices": "logits, one slice at a time",
    "table_gradients": "gradient of the token table",
    "activation_gradients": "gradients of activations",
    "reduction_copies": "copies of gradients during their reduction",
    "new_gradients": "gradients of a micro-batch",
    "update_copies": "temporary tensors of the update",
    "cuda_context": "CUDA and its libraries",
    "host": "offloaded to the host",
    "disk": "offloaded to disk",
}

WORDS = {  # parts of the time
    "products": "matrix products",
    "attention": "attention",
    "heads": "logits and token table",
    "launches": "launches and small kernels",
    "recomputed": "recomputation",
    "traffic": "norms, activations, dropout",
    "tensor": "tensor-parallel all-reduces",
    "sequence": "sequence-parallel all-to-alls",
    "gathering": "gathering weights (ZeRO-3)",
    "reducing": "summing gradients",
    "passing": "activations between pipeline stages",
    "bubble": "pipeline bubble",
    "update": "weight update",
}


SENT = {  # parts of the communication
    "reducing": "gradients",
    "gathering": "weights of layers (ZeRO-3)",
    "spreading": "updated weights",
    "tensor": "tensor-parallel all-reduces",
    "sequence": "sequence-parallel all-to-alls",
    "passing": "activations between pipeline stages",
}


def view_plan(plan: RunEstimate) -> Group:
    """The whole plan of a run."""
    own, demand = plan.own, plan.demand
    head = [
        f"{plan.recipe.name}: {demand.parameters:,} parameters, {plan.recipe.num_tokens:,} tokens, "
        f"{demand.training_flops:.3g} FLOPs",
        f"{plan.cluster.name}: {plan.device.name}" + (f" ({plan.assumed})" if plan.assumed else ""),
        own.choice.layout.describe(),
    ]
    if plan.device.kind == "cuda":
        head.append(f"times are from a roofline model, with the overheads of Sesame's code {CALIBRATED}")
    parts: list[RenderableType] = [Text(line) for line in head]
    if plan.why_not:
        parts.append(Text(f"impossible: {plan.why_not}", "red"))
    blank = Text()
    parts += [blank, _memory(plan), blank]
    parts += [] if plan.why_not else [_time(own), blank, _make_traffic_table(own), blank]
    parts += [Text(note) for note in plan.notes]
    if plan.better:
        parts.append(_layouts("the fastest layouts on these devices, with their overrides", plan, plan.better))
    else:
        parts.append(Text(f"no layout of these devices has enough memory; {plan.hint}", "red"))
    if plan.wanted:
        parts += [blank, _layouts(plan.goal, plan, (plan.wanted,))]
    elif plan.unmet and plan.better:
        parts.append(Text(plan.unmet, "red"))
    return Group(*parts)


def view_published_runs(runs: Sequence[ComparedRun]) -> Group:
    """Runs of the literature: parameters, layers, data, published and predicted time and cost.

    Below the table, a line for each run gives its source and the reason for a difference.
    """
    table = Table(box=None, pad_edge=False)
    names = (
        "run",
        "parameters",
        "layers",
        "data",
        "tokens",
        "devices",
        "published",
        "predicted",
        "ratio",
        "MFU",
        "cost",
        "predicted cost",
    )
    for name in names:
        table.add_column(name, justify="left" if name in ("run", "data", "devices") else "right")
    for one in runs:
        run = one.run
        hours = (format_duration(3_600 * each) for each in (run.hours, one.hours))
        cost = f"${run.usd:,.0f}" if run.usd else ""
        ratios = f"{one.ratio:.2f}", f"{one.mfu:.0%}"
        usd = "" if run.of_step else f"${one.usd:,.0f}"
        size = f"{one.parameters / 1e6:,.0f} M", str(one.layers), one.corpus, f"{one.tokens:.1e}"
        table.add_row(run.name, *size, f"{run.layout.devices:,} {run.device}", *hours, *ratios, cost, usd)
    lines = [Text(f"{one.run.name}: {'; '.join(filter(None, (one.run.source, one.run.note)))}") for one in runs]
    about = Text(
        "Ratio: predicted time / published time. MFU: model FLOPs / (published time x 16-bit peak of the devices)."
    )
    return Group(table, Text(), about, *lines)


def view_timed_steps(runs: Sequence[TimedPrediction]) -> Group:
    """Measured steps of Sesame, with the predictions of the plan."""
    table = Table(box=None, pad_edge=False)
    for name in (
        "Sesame's own steps",
        "parameters",
        "batch",
        "measured",
        "planned",
        "ratio",
        "GiB",
        "planned",
        "ratio",
    ):
        table.add_column(name, justify="left" if not table.columns else "right")
    for one in runs:
        run = one.run
        size = f"{one.parameters / 1e6:,.0f} M", f"{run.batch} x {run.length:,}"
        memory = (f"{run.gib:.1f}", f"{one.planned_gib:.1f}", f"{one.memory_ratio:.2f}") if run.gib else ("", "", "")
        table.add_row(run.name, *size, f"{run.step_s:.3g} s", f"{one.planned_s:.3g} s", f"{one.ratio:.2f}", *memory)
    return Group(table, Text(f"Overheads of Sesame's code: {CALIBRATED.partition(' (')[0]}."), Text())


def view_compute_optimum(found: ComputeOptimum) -> Group:
    """The optimal sizes for a budget by each approach, the position of the recipe, and the sources."""
    blank, demand = Text(), found.demand
    parts: list[RenderableType] = [_optima(found)]
    if demand:
        line = (
            f"{demand.recipe.name}: {demand.parameters:,} parameters, {demand.recipe.num_tokens:,} tokens, "
            f"{demand.training_flops:.3g} FLOPs"
        )
        parts += [blank, Text(line), _positions(found.optima)]
    sources = (Text(f"{one.approach.name}: {one.approach.source}") for one in found.optima)
    law = "With C FLOPs: N = k C^a and D = C / (6 N). Interval of a: 10th to 90th percentile. Loss: nats per token."
    return Group(*parts, blank, Text(law), *sources, *(Text(note) for note in found.notes))


def _optima(found: ComputeOptimum) -> Table:
    title = f"compute-optimal sizes for {found.flops:.3g} FLOPs"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    names = ["approach", "", "parameters N", "tokens D", "D / N", "loss", "a", "interval of a"]
    for name in [*names, "nearest recipe"] if found.demand else names:
        table.add_column(name, justify="left" if name in ("approach", "", "nearest recipe") else "right")
    for one in found.optima:
        approach = one.approach
        interval = f"{approach.interval[0]:.3f} to {approach.interval[1]:.3f}" if approach.interval else ""
        sizes = format_count(one.parameters), format_count(one.tokens), f"{one.tokens / one.parameters:.3g}"
        loss = "" if one.loss is None else f"{one.loss:.2f}"
        nearest = [f"{one.nearest[0]} ({format_count(one.nearest[1])})"] if one.nearest else []
        table.add_row(approach.name, approach.method, *sizes, loss, f"{approach.exponent:.3f}", interval, *nearest)
    return table


def _positions(optima: Sequence[Optimum]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("approach", "optimal tokens for its size", "it is", "optimal parameters for its FLOPs"):
        table.add_column(name, justify="left" if name in ("approach", "it is") else "right")
    for one in optima:
        if at := one.position:
            tokens, parameters = format_count(at.optimal_tokens), format_count(at.optimal_parameters)
            table.add_row(one.approach.name, tokens, at.verdict, parameters)
    return table


def format_count(number: float) -> str:
    """A number of parameters or tokens with three digits.

    >>> format_count(2.864e9), format_count(216.2e12), format_count(999_700), format_count(1.5e17)
    ('2.86 B', '216 T', '1 M', '1.5e+17')
    """
    number = float(f"{number:.3g}")
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if size <= number < 1e15:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def _memory(plan: RunEstimate) -> Table:
    own = plan.own
    table = Table(title="memory per device", title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    for name, value in own.choice.memory.items():
        table.add_row(MEMORY[name], format_bytes(value))
    table.add_row("peak (not all at once)", format_bytes(own.choice.memory.peak), style="bold")
    if host := own.choice.memory.host:
        node = own.device.per_node
        text = f"{format_bytes(node * host)} of {format_bytes(node * own.device.host)}"
        table.add_row(f"host memory of {node} devices", text)
    for kind, one in plan.checkpointing.items():
        text = f"{format_bytes(one.activations)}, peak {format_bytes(one.peak)}"
        table.add_row(f"activations with activation_checkpointing={kind}", text)
    return table


def _make_traffic_table(own: CostedLayout) -> Table:
    """Bytes that a device sends in a step of each phase, by operation."""
    table = Table(title="sent per device and step", title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    each = own.choice.sent
    names = dict.fromkeys(name for one in each for name, _ in one.items())
    for name in (*names, "total"):
        text = ", ".join(format_bytes(getattr(one, name)) for one in each)
        table.add_row(SENT.get(name, name), text, style="bold" if name == "total" else "")
    return table


def _time(own: CostedLayout) -> Table:
    table = Table(title="time", title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    for name, share in sorted(own.shares().items(), key=lambda item: -item[1]):
        table.add_row(WORDS[name], f"{share:.1%}")
    steps = ", ".join(format_duration(one.total) for one in own.choice.seconds)
    table.add_row("a step" if len(own.choice.seconds) == 1 else "a step of each phase", steps)
    table.add_row("MFU", f"{own.mfu:.1%}")
    table.add_row("the run", format_duration(own.choice.total_s), style="bold")
    table.add_row("device-hours", f"{own.device_hours:,.1f}")
    table.add_row("cost", f"${own.usd:,.0f}" if own.device.price else "unknown price", style="bold")
    return table


def _layouts(title: str, plan: RunEstimate, layouts: tuple[CostedLayout, ...]) -> Table:
    """A row for each layout; below it, the overrides that select the layout."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("layout", "memory", "MFU", "time", "cost"):
        table.add_column(name, justify="left" if name == "layout" else "right")
    for one in layouts:
        cost = f"${one.usd:,.0f}" if one.device.price else ""
        peak = format_bytes(one.choice.memory.peak)
        layout = Text.assemble(one.choice.layout.describe(), ("\n" + " ".join(plan.overrides(one)), "dim"))
        table.add_row(layout, peak, f"{one.mfu:.1%}", format_duration(one.choice.total_s), cost)
    return table
