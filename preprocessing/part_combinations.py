"""Which packing, masking, objective and losses work together, and what to change if they do not."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, get_args

from preprocessing.masking import Masking
from preprocessing.objectives import Objective
from preprocessing.packing import Packing
from preprocessing.schema import ON_DEMAND, OPTIONAL
from preprocessing.spec import choices_by_key, kind_of

_UNIONS: Final[dict[str, Any]] = {"packing": Packing, "masking": Masking, "objective": Objective}


def impossible(
    packing: Packing, masking: Masking, objective: Objective, losses_needs: Mapping[str, frozenset[str]]
) -> str | None:
    """Why these parts cannot work together, with the missing column and a remedy; None if they can.

    `losses_needs` has the required columns of each kind of loss.

    >>> from preprocessing.masking import NoMasking
    >>> from preprocessing.objectives import MaskedLM, CausalLM
    >>> from preprocessing.packing import Contiguous
    >>> impossible(Contiguous(unit="token"), NoMasking(), CausalLM(), {"next_token": frozenset({"labels"})})
    >>> impossible(Contiguous(unit="token"), NoMasking(), MaskedLM(), {"masked_tokens": frozenset({"labels"})})
    "objective 'mlm' needs column 'hits', which masking 'none' does not produce: use masking kind 'token', 'whole_word',
    'entity', 'span', 'ngram', 'random_spans', 'fragment' or 'partial_prediction'"
    """
    parts = {"packing": packing, "masking": masking, "objective": objective}
    # Whether the corpus has the optional columns is only checked when it is opened.
    emitted = packing.produced_columns | masking.produced_columns | ON_DEMAND | OPTIONAL
    for reader, needs in (("masking", masking.required_columns), ("objective", objective.required_columns)):
        for column in sorted(needs - emitted):
            return f"{reader} {parts[reader].kind!r} needs column {column!r}, {_explain_missing_column(column, parts)}"
    if objective.reads_segments not in (1, packing.segments):
        kinds = [kind_of(member) for member in get_args(Packing) if member.segments == objective.reads_segments]
        return (
            f"objective {objective.kind!r} needs sequences of {objective.reads_segments} segments, but packing "
            f"{packing.kind!r} makes {packing.segments}: use packing kind {join_choices(map(repr, kinds))}"
        )
    if unread := masking.produced_columns - objective.required_columns:
        reason = f"objective {objective.kind!r} does not read {min(unread)!r}"
        none = [kind_of(member) for member in get_args(Masking) if not member.possible_columns]
        return f"masking {masking.kind!r} has no effect, {reason}: use masking kind {join_choices(map(repr, none))}"
    for loss, needs in losses_needs.items():
        if scarce := needs & (ON_DEMAND | OPTIONAL):
            return (
                f"loss {loss!r} needs column {min(scarce)!r}, which only masking and objective can read: "
                "remove it from the required columns of the loss"
            )
        for column in sorted(needs - emitted - objective.produced_columns):
            return (
                f"loss {loss!r} needs column {column!r}, {_explain_missing_column(column, parts)}, or remove the loss"
            )
    return None


def _explain_missing_column(column: str, parts: Mapping[str, Packing | Masking | Objective]) -> str:
    """The part of a recipe that should produce a missing column, with the kinds that can produce it."""
    for room, union in _UNIONS.items():
        if kinds := [kind_of(member) for member in get_args(union) if column in member.possible_columns]:
            without = f"which {room} {parts[room].kind!r} does not produce"
            if parts[room].kind in kinds:
                return f"{without} with {_explain_keys(column, parts[room])}"
            return f"{without}: use {room} kind {join_choices(map(repr, kinds))}"
    raise ValueError(f"no part produces column {column!r}")


def _explain_keys(column: str, part: Packing | Masking | Objective) -> str:
    """The key that keeps a part from producing a column, and its other values: "negatives none: use negatives ..."."""
    kind: Any = type(part)
    for name, choices in choices_by_key(kind).items():
        having = []
        for value in choices:
            with suppress(ValueError):  # a value that does not fit the other keys
                other: Any = replace(part, **{name: value})
                having += [value] * (column in other.produced_columns)
        if having:
            return f"{name} {getattr(part, name)!r}: use {name} {join_choices(map(repr, having))}"
    return "these keys: change them"


def join_choices(names: Iterable[str]) -> str:
    """Join alternatives with commas and "or".

    >>> join_choices(["words", "spans", "ngrams"]), join_choices(["pair"])
    ('words, spans or ngrams', 'pair')
    """
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
