"""Numbers that JSON has. Without numpy, which the shell would wait for as it completes a word."""

import math
from collections.abc import Mapping
from typing import Any


def replace_non_finite(value: Any) -> Any:
    """A value with null in the place of what is no number in JSON: NaN and infinity.

    >>> replace_non_finite({"a": [1.5, float("inf")], "b": float("nan")})
    {'a': [1.5, None], 'b': None}
    """
    if isinstance(value, Mapping):
        return {key: replace_non_finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
