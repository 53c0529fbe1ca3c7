"""How points went: a line each, a table of faults and moments, and values for a file."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from tests.chaos.plan import TABLE
from tests.chaos.play import Outcome

WORKER_KILLED: Final = ("kill worker", "kill first worker", "killed for memory", "checkpoint damaged at work")


def line(outcome: Outcome, number: int, total: int) -> str:
    """How one point went, in rich's markup."""
    point, ends = outcome.point, ", ".join(map(str, outcome.codes))
    word = "[red]wrong[/]" if outcome.faults else "[green]right[/]"
    after = f", next step after {outcome.next_step_s:.1f} s" if outcome.next_step_s else ""
    where = escape("; ".join(outcome.notes))
    return (
        f"{number}/{total} {word} {escape(point.name)}: {where}; ends {ends}{after}, {outcome.seconds:.0f} s"
        + "".join(f"\n    {escape(fault)}" for fault in outcome.faults)
    )


def table(outcomes: Sequence[Outcome]) -> Table:
    """Right of all points by fault and moment, and the longest time to the next step."""
    columns = list(dict.fromkeys(moment for _, row in TABLE.values() for moment in row))
    shown = Table("fault", *columns, "most s to the next step", title="points that were as if nothing had been")
    for fault in TABLE:
        mine = [outcome for outcome in outcomes if outcome.point.fault == fault]
        if not mine:
            continue
        cells = []
        for moment in columns:
            here = [outcome for outcome in mine if outcome.point.moment == moment]
            right = sum(not outcome.faults for outcome in here)
            cells.append("" if not here else f"[{'green' if right == len(here) else 'red'}]{right}/{len(here)}[/]")
        longest_s = max(outcome.next_step_s for outcome in mine)
        shown.add_row(fault, *cells, f"{longest_s:.1f}" if longest_s else "")
    return shown


def recovery(outcomes: Sequence[Outcome]) -> str:
    """From the death of a worker to the next step, beyond what the start of its process took; "" where none died."""
    killed = [each for each in outcomes if each.point.fault in WORKER_KILLED and each.next_step_s and each.start_s]
    if not killed:
        return ""
    beyond_s = [outcome.next_step_s - outcome.start_s for outcome in killed]
    after_s = percentile([outcome.next_step_s for outcome in killed], 0.95)
    return (
        f"a worker killed: next step after {after_s:.1f} s (95th percentile of {len(killed)}), "
        f"{percentile(beyond_s, 0.95):.1f} s beyond the start of its process"
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed.

    >>> percentile([3.0, 1.0, 2.0], 0.95)
    3.0
    """
    return sorted(values)[math.ceil(share * len(values)) - 1]


def values(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """For a file."""
    found = []
    for outcome in sorted(outcomes, key=lambda each: each.point.name):
        value = asdict(outcome) | {"name": outcome.point.name}
        value |= {key: round(value[key], 1) for key in ("seconds", "next_step_s", "start_s")}
        found.append(value)
    return found
