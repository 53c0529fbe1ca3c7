"""Report outcomes of points: a line for each, a table of faults and moments, and values for a file."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from tests.chaos.plan import TABLE
from tests.chaos.play import Outcome

MOST_BEYOND_S: Final = 15.0
WORKER_KILLED: Final = ("kill worker", "kill first worker", "killed for memory", "checkpoint damaged at work")


def line(outcome: Outcome, number: int, total: int) -> str:
    """The outcome of one point in rich markup."""
    point, ends = outcome.point, ", ".join(map(str, outcome.codes))
    word = "[red]failed[/]" if outcome.faults else "[green]passed[/]"
    after = f", next step after {outcome.next_step_s:.1f} s" if outcome.next_step_s else ""
    where = escape("; ".join(outcome.notes)) + (f" (try {outcome.tries})" if outcome.tries > 1 else "")
    return (
        f"{number}/{total} {word} {escape(point.name)}: {where}; ends {ends}{after}, {outcome.seconds:.0f} s"
        + "".join(f"\n    {escape(fault)}" for fault in outcome.faults)
    )


def table(outcomes: Sequence[Outcome]) -> Table:
    """A table of passed and all points by fault and moment, with the longest time to the next step."""
    columns = list(dict.fromkeys(moment for _, row in TABLE.values() for moment in row))
    shown = Table("fault", *columns, "longest time to next step, s", title="points that equal the undisturbed run")
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


@dataclass(frozen=True)
class Recovery:
    """The time from the death of a worker to the next step, in seconds.

    `beyond_s` excludes the start of new processes and their imports, as in benchmarks/recovery.py.
    """

    points: int
    after_s: tuple[float, float]  # median and 95th percentile, as for beyond_s
    beyond_s: tuple[float, float]

    @property
    def is_slow(self) -> bool:
        """Whether the recovery exceeds its limit; on a machine with other load this means little."""
        return self.beyond_s[1] > MOST_BEYOND_S

    def __str__(self) -> str:
        (after, most), (beyond, most_beyond) = self.after_s, self.beyond_s
        return (
            f"worker killed: next step after {after:.1f} s (p50) and {most:.1f} s (p95) in {self.points} points; "
            f"without the start of processes {beyond:.1f} s (p50) and {most_beyond:.1f} s (p95), expected at most "
            f"{MOST_BEYOND_S:.0f} s"
        )


def recovery(outcomes: Sequence[Outcome]) -> Recovery | None:
    """The recovery times of points in which a worker died and the same start continued; None if there are none."""
    killed = [each for each in outcomes if each.point.fault in WORKER_KILLED and each.next_step_s and each.start_s]
    if not killed:
        return None
    after_s = [outcome.next_step_s for outcome in killed]
    beyond_s = [outcome.next_step_s - outcome.start_s for outcome in killed]
    return Recovery(len(killed), _median_and_most(after_s), _median_and_most(beyond_s))


def _median_and_most(seconds: Sequence[float]) -> tuple[float, float]:
    return percentile(seconds, 0.5), percentile(seconds, 0.95)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by the fraction `share` of all values.

    >>> percentile([3.0, 1.0, 2.0], 0.95)
    3.0
    """
    return sorted(values)[math.ceil(share * len(values)) - 1]


def values(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The outcomes as values for a JSON file."""
    found = []
    for outcome in sorted(outcomes, key=lambda each: each.point.name):
        value = asdict(outcome) | {"name": outcome.point.name}
        value |= {key: round(value[key], 1) for key in ("seconds", "next_step_s", "start_s")}
        found.append(value)
    return found
