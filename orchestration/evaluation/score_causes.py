"""The causes of a score by the names of the options that set them."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from orchestration.config import flatten

_OPTIONS: Final = {"start": "baseline", "seed": "num_seeds", "length": "max_seq_length"}  # where the names differ
_DERIVED: Final = ("chosen_on", "length")  # causes that follow from the trials


def name_options(changed: Sequence[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The changed causes, with the options of the trials instead of their keys `cells.N...`, each once.

    >>> trials = lambda *rates: {"cells": [{"start": "pretrained", "how": {"beta2": 0.9, "rate": r}} for r in rates]}
    >>> name_options(["cells.0.how.rate", "cells.1.how.beta2", "data"], trials(0.1), trials(0.2, 0.3))
    ['data', 'rate']
    """
    of_trials = [key for key in changed if key.partition(".")[0] == "cells"]
    others = [key for key in changed if key not in of_trials and not (of_trials and key in _DERIVED)]
    if not of_trials:
        return others
    first, second = _values_of_trials(before), _values_of_trials(now)
    options = {_OPTIONS.get(key, key) for key in {*first, *second} if first.get(key) != second.get(key)}
    return sorted({*others, *options}) or ["the trials"]


def _values_of_trials(causes: Mapping[str, Any]) -> dict[str, set[str]]:
    """The values of each hyperparameter over the trials of a score."""
    values = dict[str, set[str]]()
    with suppress(KeyError, TypeError, AttributeError):  # causes that another version has stored
        for key, value in (
            pair for trial in causes["cells"] for pair in flatten({"start": trial["start"], **trial["how"]})
        ):
            values.setdefault(key.rpartition(".")[2], set()).add(json.dumps(value))
    return values
