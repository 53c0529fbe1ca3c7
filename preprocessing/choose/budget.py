"""What all choices have in common: how many tokens of a row are predicted, and how chosen units are numbered."""

from math import ceil, floor
from typing import Final, Literal

import numpy as np

from preprocessing.schema import Bools, Ints, Row
from preprocessing.spec import require

Rounding = Literal["nearest", "stochastic", "up"]
HITS: Final = frozenset({"hits"})


def budget(row: Row, rate: float, rounding: Rounding, most: int, rng: np.random.Generator) -> int:
    """Tokens to choose: a share of the row, rounded as Tokens says, never more than it has ordinary ones."""
    num_tokens = len(row["special"])
    num_ordinary = num_tokens - int(np.count_nonzero(row["special"]))
    if rounding == "nearest":
        wanted = max(1, round(rate * num_tokens))
    elif rounding == "stochastic":
        wanted = floor(rate * num_tokens + rng.random())
    else:
        wanted = ceil(rate * num_ordinary - 1e-9)  # 0.07 * 100 is 7.000000000000001, and 7 is meant
    return min(wanted, num_ordinary, most or num_ordinary)


def words_until_special(special_W: Bools) -> Ints:
    """Words from each one on up to the next special one, or to the end.

    >>> words_until_special(np.array([True, False, False, True, False])).tolist()
    [0, 2, 1, 0, 1]
    """
    special_at = np.append(np.flatnonzero(special_W), len(special_W))
    word_W = np.arange(len(special_W))
    return special_at[np.searchsorted(special_at, word_W)] - word_W


def number_runs(is_chosen_S: Bools) -> Ints:
    """Each run of chosen positions gets its number, from 1 up.

    >>> number_runs(np.array([True, True, False, False, True])).tolist()
    [1, 1, 0, 0, 2]
    """
    is_first_S = is_chosen_S.copy()
    is_first_S[1:] &= ~is_chosen_S[:-1]
    return np.where(is_chosen_S, np.cumsum(is_first_S), 0).astype(np.int32)


def check(rate: float, most: int) -> None:
    require(0 < rate <= 1, "choose.rate", rate, "a share above 0, at most 1")
    require(most >= 0, "choose.most", most, "a number of tokens from 1 up, or 0 for no cap")
