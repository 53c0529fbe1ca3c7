"""How one recipe differs from another, said as the abstract of its paper would say it."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from orchestration.config import Recipe, flat
from orchestration.reports import describe as say
from preprocessing.choose import Nothing
from training.specs import Decoder, EncoderDecoder

TOLD_OF: Final = (  # the keys that the sentences of an abstract speak of
    *("name", "paper", "expected", "phases", "optim.kind", "optim.peak", "optim.warmup", "data.corpus"),
    *(f"data.vocab.{key}" for key in ("kind", "size", "rows", "lowercase", "alpha", "languages")),
    *(
        f"data.segment.{key}"
        for key in ("kind", "fill", "cross_documents", "long", "negative", "unit", "reuse", "pairs")
    ),
    *("objective.losses", "objective.duplicates"),
    *(
        f"objective.choose.{key}"
        for key in ("kind", "rate", "longest", "alpha", "units", "tokens", "mean", "of", "block")
    ),
    *(
        f"objective.rewrite.{key}"
        for key in ("kind", "mask", "swap", "unit", "answer", "collapse", "edits", "rate", "block", "hide")
    ),
    *(f"trunk.{key}" for key in ("kind", "layers", "width", "heads", "norm", "embedding", "sharing", "groups")),
    *(f"trunk.{key}" for key in ("positions", "memory", "cutoffs", "norm_kind", "window")),
)


def abstract(ours: Recipe, theirs: Recipe) -> list[str]:
    """How `theirs` differs from `ours`, as its abstract would say it; the keys that no sentence covers come last.

    >>> from orchestration.config import load
    >>> abstract(load("bert_base"), load("roberta_base"))[3]
    'removes next sentence prediction'
    """
    told = [*_objective_lines(ours, theirs), *_training_lines(ours, theirs), *_net_lines(ours, theirs)]
    before, after = dict(flat(dataclasses.asdict(ours))), dict(flat(dataclasses.asdict(theirs)))
    for key, value in after.items():  # a key that is gone went with the part that a sentence has named
        said = any(f"{key}.".startswith(f"{told_of}.") for told_of in TOLD_OF)
        part = key.rpartition(".")[0]
        is_new = before.get(f"{part}.kind") != after.get(f"{part}.kind")  # and what it has by default goes unsaid
        if not said and value != before.get(key) and not (is_new and _is_default(theirs, key, value)):
            told.append(f"{key}: {_shown(value)}" + (f", was {_shown(before[key])}" if key in before else ""))
    return told


def _objective_lines(ours: Recipe, theirs: Recipe) -> Iterator[str]:
    yield from _instead("trains on the text of", ours.data.corpus, theirs.data.corpus)
    yield from _instead("reads", say.vocab(ours.data.vocab), say.vocab(theirs.data.vocab))
    yield from _instead("sees", say.segment(ours.data.segment), say.segment(theirs.data.segment))
    before, after = say.losses(ours), say.losses(theirs)
    if set(before) & set(after):
        yield from (f"removes {loss}" for loss in before if loss not in after)
        yield from (f"adds {loss}" for loss in after if loss not in before)
    else:
        yield f"asks for {' + '.join(after)}, instead of {' + '.join(before)}"
    if not (isinstance(theirs.objective.choose, Nothing) and isinstance(theirs.trunk, EncoderDecoder)):
        yield from _instead("hides", say.choose(ours.objective.choose), say.choose(theirs.objective.choose))
    yield from _instead("rewrites:", say.rewrite(ours.objective.rewrite), say.rewrite(theirs.objective.rewrite))
    fixed, now_fixed = ours.objective.duplicates, theirs.objective.duplicates
    if fixed and not now_fixed and not isinstance(theirs.objective.choose, Nothing):
        yield f"changes the masks in every epoch, instead of repeating {fixed} fixed ones"
    elif now_fixed != fixed and now_fixed:
        yield f"repeats {now_fixed} fixed masks, instead of " + (f"{fixed}" if fixed else "new ones in every epoch")


def _training_lines(ours: Recipe, theirs: Recipe) -> Iterator[str]:
    (rows, length, peak), (rows_before, length_before, peak_before) = (
        (max(phase.batch for phase in recipe.phases), _mean_length(recipe), recipe.optim.peak)
        for recipe in (theirs, ours)
    )
    if rows != rows_before:
        size = _than(rows, rows_before, "bigger", "smaller")
        yield f"trains with {size} batches: {rows:,} rows instead of {rows_before:,}"
    if length != length_before:
        size = _than(length, length_before, "longer", "shorter")
        yield f"trains on {size} rows: {_lengths(theirs)}, instead of {_lengths(ours)}"
    if ours.num_tokens != theirs.num_tokens:
        longer = _than(theirs.num_tokens, ours.num_tokens, "longer", "shorter")
        yield (
            f"trains {longer}: {say.brief(theirs.num_tokens)} tokens in {theirs.num_steps:,} steps, "
            f"instead of {say.brief(ours.num_tokens)} in {ours.num_steps:,}"
        )
    yield from _instead("learns with", say.optim(ours.optim), say.optim(theirs.optim))
    if (peak, theirs.optim.warmup) != (peak_before, ours.optim.warmup):
        yield (
            f"learns at a peak rate of {peak:g} after {theirs.optim.warmup:,} steps of warm-up, "
            f"instead of {peak_before:g} after {ours.optim.warmup:,}"
        )


def _net_lines(ours: Recipe, theirs: Recipe) -> Iterator[str]:
    before, after = ours.trunk, theirs.trunk
    if say.trunk(before) == say.trunk(after):
        yield f"keeps the net: {say.trunk(before)}"
    else:
        yield f"builds another net: {say.trunk(after)}, instead of {say.trunk(before)}"
    narrow, narrow_before = after.table_width != after.width, before.table_width != before.width
    if narrow and (after.table_width, narrow_before) != (before.table_width, narrow):
        yield f"factorises the embeddings: tables {after.table_width:,} wide, instead of {before.table_width:,}"
    elif narrow_before and not narrow:
        yield f"gives the embeddings the width of the net, {after.width:,}, instead of {before.table_width:,}"
    yield from _instead("has", say.shared(before), say.shared(after))
    yield from _instead("knows a token's position by", say.positions(before), say.positions(after))
    now, then = getattr(after, "memory", 0), getattr(before, "memory", 0)
    if now != then:
        yield f"remembers the states of {now:,} tokens before a row, instead of {then:,}" if now else "has no memory"
    yield from _instead("normalises", _normalises(before), _normalises(after))
    yield from _instead("looks at", _sees(before), _sees(after))
    if _cutoffs(after) != _cutoffs(before):
        cuts = ", ".join(f"{cut:,}" for cut in _cutoffs(after))
        yield f"predicts frequent tokens first, in clusters that end at {cuts}" if cuts else "predicts all tokens alike"


def _normalises(trunk: Any) -> str:
    by_square = isinstance(trunk, EncoderDecoder) and trunk.norm_kind == "rms"
    return "by the root mean square" if by_square else "by mean and variance"


def _sees(trunk: Any) -> str:
    window = getattr(trunk, "window", 0)
    return f"a window of {window:,} tokens" if window else "the whole row"


def _cutoffs(trunk: Any) -> tuple[int, ...]:
    return trunk.cutoffs if isinstance(trunk, Decoder) else ()


def _is_default(recipe: Recipe, key: str, value: Any) -> bool:
    """Whether the value at a dotted key is what its part has anyway: nobody asked for it.

    >>> from orchestration.config import load
    >>> _is_default(load("gpt2"), "trunk.band", 0)
    True
    """
    *parents, name = key.split(".")
    part: Any = recipe
    for step in parents:
        part = part[int(step)] if step.isdecimal() else getattr(part, step, None)
    fields = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    return any(field.name == name and field.default == value for field in fields)


def _instead(verb: str, before: str, after: str) -> list[str]:
    return [f"{verb} {after}, instead of {before}"] if before != after else []


def _than(after: float, before: float, more: str, less: str) -> str:
    return more if after > before else less


def _mean_length(recipe: Recipe) -> float:
    return sum(phase.length * phase.steps for phase in recipe.phases) / recipe.num_steps


def _lengths(recipe: Recipe) -> str:
    """The lengths of the phases in words: '512 tokens throughout', '128 tokens for 90% of the steps, then 512'."""
    first, *rest = recipe.phases
    if all(phase.length == first.length for phase in rest):
        return f"{first.length:,} tokens throughout"
    return f"{first.length:,} tokens for {first.steps / recipe.num_steps:.0%} of the steps" + "".join(
        f", then {phase.length:,}" for phase in rest
    )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
