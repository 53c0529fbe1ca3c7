"""What all choices have in common: how many tokens of a row are predicted, and how chosen units are numbered."""

from collections.abc import Sequence
from math import ceil, floor
from typing import Final, Literal

import numpy as np

from preprocessing.schema import Bools, Ints, Row
from preprocessing.spec import require

Rounding = Literal["nearest", "stochastic", "up"]
HITS: Final = frozenset({"hits"})


def budget(row: Row, rate: float, rounding: Rounding, most: int, rng: np.random.Generator) -> int:
    """Tokens to choose: a share of the row, rounded as TokenMasking says, never more than it has ordinary ones."""
    num_tokens = len(row["special_tokens_mask"])
    num_ordinary = num_tokens - int(np.count_nonzero(row["special_tokens_mask"]))
    if rounding == "nearest":
        wanted = max(1, round(rate * num_tokens))
    elif rounding == "stochastic":
        wanted = floor(rate * num_tokens + rng.random())
    else:
        wanted = ceil(rate * num_ordinary - 1e-9)  # 0.07 * 100 is 7.000000000000001, and 7 is meant
    return min(wanted, num_ordinary, most or num_ordinary)


def most_runs(num_tokens: int, rate: float = 1.0, most: int = 0) -> int:
    """Runs that a budget of such a share can be scattered into, one token each at the most.

    >>> most_runs(511, 0.15), most_runs(511, 0.15, most=20), most_runs(511)
    (77, 20, 256)
    """
    chosen = max(1, ceil(rate * num_tokens - 1e-9))
    return min(chosen, most or chosen, (num_tokens + 1) // 2)


class OrdinaryWords:
    """The O words of a stretch of text that are no special tokens, in their order.

    A word that begins before the stretch begins with it here. `long_O`: tokens of each, int64.

    >>> special_S = np.array([True, False, False, True, False])
    >>> words = OrdinaryWords(special_S, np.array([True, True, False, True, True]))
    >>> words.long_O.tolist()
    [2, 1]
    >>> words.units([0, 1], firsts=[0]).tolist()
    [0, 1, 1, 0, 2]
    """

    def __init__(self, special_S: Bools, starts_S: Bools) -> None:
        begin_W = np.flatnonzero(np.append(True, starts_S[1:])[: len(starts_S)])
        self._long_W = np.diff(begin_W, append=len(starts_S))
        self._ordinary_O = np.flatnonzero(~special_S[begin_W])
        self.long_O: Ints = self._long_W[self._ordinary_O]

    def units(self, chosen: Sequence[int], firsts: Sequence[int]) -> Ints:
        """The column `hits` where these words are chosen; units begin with `firsts` and behind special tokens."""
        is_chosen_O = np.zeros(len(self.long_O), dtype=bool)
        is_chosen_O[chosen] = True
        is_first_O = np.diff(self._ordinary_O, prepend=-2) > 1
        is_first_O[firsts] = True
        unit_W = np.zeros(len(self._long_W), dtype=np.int32)
        unit_W[self._ordinary_O] = np.where(is_chosen_O, np.cumsum(is_chosen_O & is_first_O), 0)
        return np.repeat(unit_W, self._long_W)


def number_runs(is_chosen_S: Bools) -> Ints:
    """Each run of chosen positions gets its number, from 1 up.

    >>> number_runs(np.array([True, True, False, False, True])).tolist()
    [1, 1, 0, 0, 2]
    """
    is_first_S = is_chosen_S.copy()
    is_first_S[1:] &= ~is_chosen_S[:-1]
    return np.where(is_chosen_S, np.cumsum(is_first_S), 0).astype(np.int32)


def check(rate: float, most: int) -> None:
    require(0 < rate <= 1, "masking.rate", rate, "a share above 0, at most 1")
    require(most >= 0, "masking.max_predictions_per_seq", most, "a number of tokens from 1 up, or 0 for no cap")
