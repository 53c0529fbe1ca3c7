"""The nets and the goals of benchmarks/gpu.py, and its table. This module needs no torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

SESAME, PLAIN, TRAINER, RESTART = "sesame", "plain", "trainer", "restart"
FP8: Final = "fp8"
GRAPHS: Final = "graphs"
PRODUCTS: Final = ("bf16", "tensorwise", "rowwise")  # of the linear layers in the parts of FP8
ARM_NAMES: Final = {SESAME: "Sesame", PLAIN: "plain torch", TRAINER: "transformers' Trainer"}
RARE_ARM_NAMES: Final = {GRAPHS: "Sesame, `cuda_graphs`"}  # in the table only if it has run
Results = Mapping[str, Mapping[str, Any]]
"""The results of each part by name, such as "sesame gpt2". A part that failed has a `problem`."""


@dataclass(frozen=True)
class Net:
    """A published model with the sizes of its batches, and the goals of Sesame's speed on one H200."""

    title: str
    recipe: str
    length: int
    rows: int  # sequences of a step
    plain_rows: int  # sequences of a micro-batch of plain torch
    trainer_rows: int  # sequences of a micro-batch of transformers
    log_every: int  # steps between two measurements of Sesame
    document_tokens: float  # mean length of a document
    least_tokens_per_s: float = 0.0
    least_of_plain: float = 1.0
    least_of_trainer: float = 0.0


NETS: Final = {
    "gpt2": Net("GPT-2 124M, 512 x 1,024", "gpt2", 1_024, 512, 64, 32, 4, 1_000, 490e3, 1.0, 3.0),
    # with documents of 2,600 tokens, 78 % of the positions of a batch at 512 are tokens, and 92 % at 128
    "bert512": Net("BERT base, 256 x 512", "bert_base", 512, 256, 128, 64, 10, 2_600, 600e3, 1.0, 1.9),
    "bert128": Net("BERT base, 256 x 128", "bert_base", 128, 256, 256, 256, 20, 2_600, 600e3, 1.0, 1.9),
}


@dataclass(frozen=True)
class Goal:
    """A number that Sesame must reach; None: not measured."""

    text: str
    measured: float | None
    least: float

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        return "yes" if self.measured >= self.least else "no"

    def format(self, value: float | None) -> str:
        if value is None:
            return "-"
        return f"{value:,.0f}" if self.least >= 1_000 else f"{value:.2f}"


def list_goals(results: Results) -> Iterator[Goal]:
    """Yield the goals of all nets, with what was measured."""
    for name, net in NETS.items():
        ours = find_speed(results, SESAME, name)
        yield Goal(f"{net.title}: tokens/s", ours, net.least_tokens_per_s)
        for arm, least in ((PLAIN, net.least_of_plain), (TRAINER, net.least_of_trainer)):
            other = find_speed(results, arm, name)
            yield Goal(f"{net.title}: ratio to {ARM_NAMES[arm]}", ours / other if ours and other else None, least)


def find_speed(results: Results, arm: str, net: str) -> float | None:
    """Tokens per second of an arm, or None if it has no result."""
    return results.get(f"{arm} {net}", {}).get("tokens_per_s")


def render_table(results: Results) -> str:
    """All speeds and all goals as two tables, and the number of goals that are met."""
    goals = list(list_goals(results))
    lines = [
        "| net | arm | tokens/s | MFU | step, s | GiB | first step after, s | again, s | launches a step | note |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_describe_arm(results, arm, name) for name in NETS for arm in _list_arms(results, name)),
        "",
        "| goal | measured | at least | met |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {goal.text} | {goal.format(goal.measured)} | {goal.format(goal.least)} | {goal.verdict} |" for goal in goals
    ]
    lines += render_fp8(results)
    met = sum(goal.verdict == "yes" for goal in goals)
    return "\n".join([*lines, "", f"{met} of {len(goals)} goals are met."])


def render_fp8(results: Results) -> list[str]:
    """A table of speeds and losses with FP8 products beside those in bf16; empty if none was measured."""
    found = {products: results.get(f"{FP8} {products}", {}) for products in PRODUCTS}
    if not any("tokens_per_s" in each for each in found.values()):
        return []
    plain = found[PRODUCTS[0]]
    lines = [
        "",
        "| linear layers in | tokens/s | ratio to bf16 | loss | difference of loss | after steps | GiB | note |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for products, each in found.items():
        is_comparable = "loss" in each and each.get("last_step") == plain.get("last_step")
        cells = [
            products,
            _format(each.get("tokens_per_s"), ",.0f"),
            _format(each["tokens_per_s"] / plain["tokens_per_s"] if is_comparable else None, ".2f"),
            _format(each.get("loss"), ".4f"),
            _format(each["loss"] - plain["loss"] if is_comparable else None, "+.4f"),
            _format(each.get("last_step"), ",.0f"),
            _format(each.get("gib"), ".1f"),
            str(each.get("problem", "")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _list_arms(results: Results, name: str) -> list[str]:
    return [*ARM_NAMES, *(arm for arm in RARE_ARM_NAMES if f"{arm} {name}" in results)]


def _describe_arm(results: Results, arm: str, name: str) -> str:
    found = results.get(f"{arm} {name}", {"problem": "not run"})
    again = results.get(f"{RESTART} {name}", {}) if arm == SESAME else {}
    notes = [f"{found['filled']:.0%} of the positions are tokens"] if "filled" in found else []
    notes += [str(found[key]) for key in ("attention", "problem") if found.get(key)]
    cells = [
        NETS[name].title,
        (ARM_NAMES | RARE_ARM_NAMES)[arm],
        _format(found.get("tokens_per_s"), ",.0f"),
        _format(found.get("mfu"), ".3f"),
        _format(found.get("step_s"), ".3f"),
        _format(found.get("gib"), ".1f"),
        _format(found.get("first_step_s"), ".1f"),
        _format(again.get("first_step_s"), ".1f"),
        _format(found.get("launches"), ",.0f"),
        "; ".join(notes),
    ]
    return f"| {' | '.join(cells)} |"


def _format(value: float | None, style: str) -> str:
    return "-" if value is None else format(value, style)
