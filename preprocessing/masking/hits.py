"""Validate the column `hits` that a masking scheme returned."""

from typing import Any

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.schema import Bools


def require_hits(scheme: object, hits: Any, special_S: Bools, *, values: bool = True) -> None:
    """Raise BadInput, which names the class of `scheme`, unless `hits` is a valid column for these tokens.

    A scheme that requires the column `special_tokens_mask` must not select special tokens, unless its key
    `mask_special_tokens` is true. Without `values`, only shape and dtype are validated.

    >>> special_S = np.array([True, False, False])
    >>> require_hits("a scheme", np.array([0, 1, 2]), special_S)
    >>> require_hits("a scheme", np.array([1, 1, 2]), special_S)
    Traceback (most recent call last):
    ...
    preprocessing.errors.BadInput: invalid hits from builtins.str: got 1 selected special token, expected none; return 0
    where row["special_tokens_mask"] is true
    """
    if not isinstance(hits, np.ndarray) or hits.shape != special_S.shape or hits.dtype.kind not in "iu":
        raise _wrong_type(scheme, hits, len(special_S))
    if not values:
        return
    least, most = int(hits.min(initial=0)), int(hits.max(initial=0))
    if least < 0 or most > len(hits):
        wrong = least if least < 0 else most
        remedy = "number the selected units from 1, and return 0 for other tokens"
        raise _invalid(scheme, f"the value {wrong}", f"numbers from 0 to {len(hits)}, the number of tokens", remedy)
    # Schemes without this column treat all tokens alike, e.g. T5's random spans.
    knows_special = "special_tokens_mask" in getattr(scheme, "required_columns", ("special_tokens_mask",))
    spares_special = knows_special and not getattr(scheme, "mask_special_tokens", False)
    if spares_special and (selected := int(np.count_nonzero(hits[special_S]))):
        got = f"{selected} selected special token{'s' * (selected > 1)}"
        raise _invalid(scheme, got, "none", 'return 0 where row["special_tokens_mask"] is true')


def _wrong_type(scheme: object, hits: Any, num_tokens: int) -> BadInput:
    expected = f"one integer for each of the {num_tokens} tokens"
    if not isinstance(hits, np.ndarray):
        return _invalid(scheme, f"a {type(hits).__name__}", expected, "return a numpy array of dtype int32")
    if hits.shape != (num_tokens,):
        return _invalid(
            scheme, f"the shape {list(hits.shape)}", expected, "return one number for each token of the row"
        )
    remedy = "return 0 for a token that is not selected, else the number of its unit, with .astype(np.int32)"
    return _invalid(scheme, f"the dtype {hits.dtype}", expected, remedy)


def _invalid(scheme: object, got: str, expected: str, remedy: str) -> BadInput:
    name = f"{type(scheme).__module__}.{type(scheme).__qualname__}"
    return BadInput(f"invalid hits from {name}: got {got}, expected {expected}; {remedy}")
