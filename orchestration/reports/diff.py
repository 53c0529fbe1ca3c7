"""Describes the differences between two recipes in sentences."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from orchestration.config import Recipe, flatten
from orchestration.reports import describe
from training.optimizers import cycles

# Keys that the sentences below cover. They also cover the keys that the description of a part depends on (_in_words).
COVERED: Final = (
    "name",
    "paper",
    "reported_results",
    "phases",
    "optimizer.learning_rate",
    "optimizer.warmup_steps",
    "data.corpus",
)
COVERED_PARTS: Final = ("losses", "data.static_masks", "data.mixture")
PARTS: Final = ("data.tokenizer", "data.packing", "masking", "objective", "model", "optimizer")


def describe_difference(ours: Recipe, theirs: Recipe) -> list[str]:
    """The differences of `theirs` from `ours`, in sentences; the last lines are the keys that no sentence covers.

    >>> from orchestration.config import load
    >>> describe_difference(load("bert_base"), load("roberta_base"))[3]
    'removes next sentence prediction'
    """
    lines = [*_objective_lines(ours, theirs), *_training_lines(ours, theirs), *_model_lines(ours, theirs)]
    before, after = (dict(flatten(dataclasses.asdict(recipe))) for recipe in (ours, theirs))
    for key, value in after.items():  # a key that only `ours` has belongs to a replaced part, which a sentence names
        if value != before.get(key) and not _is_covered(ours, theirs, key):
            lines.append(f"{key}: {_display(value)}" + (f", was {_display(before[key])}" if key in before else ""))
    return lines


def _is_covered(ours: Recipe, theirs: Recipe, key: str) -> bool:
    """Whether a sentence covers the value of a key in `theirs`, or whether the value is a default."""
    if any(f"{key}.".startswith(f"{covered}.") for covered in (*COVERED, *COVERED_PARTS)):
        return True
    place = next((place for place in PARTS if key.startswith(f"{place}.")), "")
    if not place:
        return False
    before, after = (_at(recipe, place.split(".")) for recipe in (ours, theirs))
    path = _path(after, key.removeprefix(f"{place}.").split("."))
    if path[-1] == "kind":
        return True
    old_owner, owner = _at(before, path[:-1]), _at(after, path[:-1])
    if old_owner is not None and before.kind == after.kind and old_owner.kind == owner.kind:
        return _in_words(after, path, getattr(old_owner, path[-1]))
    default = next(field.default for field in dataclasses.fields(owner) if field.name == path[-1])
    is_default = default == getattr(owner, path[-1])
    return is_default or default is dataclasses.MISSING or _in_words(after, path, default)


def _path(part: Any, steps: Sequence[str]) -> list[str]:
    """The first steps of a dotted key, up to the first value that is not a part; the path does not enter lists."""
    path: list[str] = []
    for step in steps:
        path.append(step)
        part = getattr(part, step)
        if not dataclasses.is_dataclass(part):
            break
    return path


def _at(value: Any, steps: Sequence[str]) -> Any:
    """The value at a path in a recipe or a part; None if the path does not exist."""
    for step in steps:
        value = getattr(value, step, None)
    return value


def _in_words(part: Any, path: Sequence[str], other: object) -> bool:
    """Whether the description of a part changes if the value at `path` is replaced by `other`."""
    try:
        return _words(part) != _words(_with(part, path, other))
    except (TypeError, ValueError):  # this combination of values is invalid: search the description for the value
        value = _at(part, path)
        text = f"{value:,}" if isinstance(value, int) else str(value)
        return re.search(rf"\b{re.escape(text)}\b", " ".join(_words(part))) is not None


def _with(part: Any, path: Sequence[str], value: object) -> Any:
    """A copy of the part with another value at a path."""
    name, *rest = path
    return dataclasses.replace(part, **{name: _with(getattr(part, name), rest, value) if rest else value})


def _words(part: Any) -> list[str]:
    """All descriptions of a part."""
    return [getattr(part, name)() for name in sorted(dir(part)) if name.startswith("describe")]


def _objective_lines(ours: Recipe, theirs: Recipe) -> Iterator[str]:
    yield from _instead("trains on the text of", ours.data.corpus, theirs.data.corpus)
    yield from _instead("mixes", _mixtures(ours), _mixtures(theirs))
    yield from _instead("reads", ours.data.tokenizer.describe(), theirs.data.tokenizer.describe())
    yield from _instead("packing:", ours.data.packing.describe(), theirs.data.packing.describe())
    before, after = describe.losses(ours), describe.losses(theirs)
    if set(before) & set(after):
        yield from (f"removes {loss}" for loss in before if loss not in after)
        yield from (f"adds {loss}" for loss in after if loss not in before)
    else:
        yield f"predicts {' + '.join(after)}, instead of {' + '.join(before)}"
    if not theirs.objective.selects:
        yield from _instead("masks", ours.masking.describe(), theirs.masking.describe())
    yield from _instead("objective:", ours.objective.describe(), theirs.objective.describe())
    copies, now = ours.data.static_masks, theirs.data.static_masks
    if copies and not now and theirs.masking.produced_columns:
        yield f"masks dynamically, instead of statically with {copies} copies"
    elif now and now != copies:
        instead = f"{copies} copies" if copies else "dynamically"
        yield f"masks statically with {now} copies, instead of {instead}"


def _training_lines(ours: Recipe, theirs: Recipe) -> Iterator[str]:
    (rows, length, peak), (rows_before, length_before, peak_before) = (
        (max(phase.global_batch_size for phase in recipe.phases), _mean_length(recipe), recipe.optimizer.learning_rate)
        for recipe in (theirs, ours)
    )
    if rows != rows_before:
        size = _than(rows, rows_before, "larger", "smaller")
        yield f"trains with {size} batches: {rows:,} sequences instead of {rows_before:,}"
    if length != length_before:
        size = _than(length, length_before, "longer", "shorter")
        yield f"trains on {size} sequences: {_lengths(theirs)}, instead of {_lengths(ours)}"
    if ours.num_tokens != theirs.num_tokens:
        longer = _than(theirs.num_tokens, ours.num_tokens, "longer", "shorter")
        yield (
            f"trains {longer}: {describe.format_number(theirs.num_tokens)} tokens in {theirs.num_steps:,} steps, "
            f"instead of {describe.format_number(ours.num_tokens)} in {ours.num_steps:,}"
        )
    yield from _instead("optimizes with", ours.optimizer.describe(), theirs.optimizer.describe())
    if (peak, theirs.optimizer.warmup_steps) != (peak_before, ours.optimizer.warmup_steps):
        yield (
            f"has a peak learning rate of {peak:g} after {theirs.optimizer.warmup_steps:,} steps of warm-up, "
            f"instead of {peak_before:g} after {ours.optimizer.warmup_steps:,}"
        )
    yield from _instead("warms up", _warm_ups(ours), _warm_ups(theirs))
    yield from _instead("learning rate:", ours.optimizer.describe_schedule(), theirs.optimizer.describe_schedule())


def _warm_ups(recipe: Recipe) -> str:
    """When the learning rate is warmed up: once, or again in some phases."""
    others = cycles(recipe.optimizer, recipe.phases)[1:]
    again = [
        f"again at step {cycle.begin:,}, to {cycle.learning_rate:g} in {cycle.warmup_steps:,} steps" for cycle in others
    ]
    return ", and ".join(["at the start", *again]) if again else "once"


def _model_lines(ours: Recipe, theirs: Recipe) -> Iterator[str]:
    before, after = ours.model, theirs.model
    if before.describe() == after.describe():
        yield f"keeps the architecture: {after.describe()}"
    else:
        yield f"changes the architecture: {after.describe()}, instead of {before.describe()}"
    yield from _instead("has", before.describe_tables(), after.describe_tables())
    yield from _instead("has", before.describe_sharing(), after.describe_sharing())
    yield from _instead("has", before.describe_positions(), after.describe_positions())
    yield from _instead("has", before.describe_memory(), after.describe_memory())
    yield from _instead("has", before.describe_norm(), after.describe_norm())
    yield from _instead("attends to", before.describe_attention(), after.describe_attention())


def _instead(verb: str, before: str, after: str) -> list[str]:
    return [f"{verb} {after}, instead of {before}"] if before != after else []


def _mixtures(recipe: Recipe) -> str:
    """The weights of the groups of the corpus in each phase, e.g. "9 web and 1 wiki, then 1 wiki"."""
    weights = [
        " and ".join(f"{weight:g} {name}" for name, weight in phase.mixture.items()) or "as the corpus file says"
        for phase in recipe.mixed_phases
    ]
    return ", then ".join(text for text, _ in groupby(weights))


def _than(after: float, before: float, more: str, less: str) -> str:
    return more if after > before else less


def _mean_length(recipe: Recipe) -> float:
    return sum(phase.seq_length * phase.steps for phase in recipe.phases) / recipe.num_steps


def _lengths(recipe: Recipe) -> str:
    """Sequence lengths as text: '512 tokens throughout' or '128 tokens for 90% of the steps, then 512'."""
    first, *rest = recipe.phases
    if all(phase.seq_length == first.seq_length for phase in rest):
        return f"{first.seq_length:,} tokens throughout"
    return f"{first.seq_length:,} tokens for {first.steps / recipe.num_steps:.0%} of the steps" + "".join(
        f", then {phase.seq_length:,}" for phase in rest
    )


def _display(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
