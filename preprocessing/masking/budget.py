"""Functions that all masking schemes use: the number of tokens to select, and the numbering of selected units."""

from collections.abc import Sequence
from math import ceil, floor
from typing import Final, Literal

import numpy as np

from preprocessing.schema import Bools, Ints, Row
from preprocessing.spec import require

Rounding = Literal["nearest", "stochastic", "up"]
HITS: Final = frozenset({"hits"})


def budget(row: Row, rate: float, rounding: Rounding, most: int, rng: np.random.Generator) -> int:
    """Return the number of tokens to select: a fraction `rate` of the sequence, rounded as in TokenMasking.

    The number never exceeds `most` (0: no maximum) or the number of ordinary tokens, which are those that are not
    special.
    """
    num_tokens = len(row["special_tokens_mask"])
    num_ordinary = num_tokens - int(np.count_nonzero(row["special_tokens_mask"]))
    if rounding == "nearest":
        count = max(1, round(rate * num_tokens))
    elif rounding == "stochastic":
        count = floor(rate * num_tokens + rng.random())
    else:
        count = ceil(rate * num_ordinary - 1e-9)  # 0.07 * 100 is 7.000000000000001, but must give 7
    return min(count, num_ordinary, most or num_ordinary)


def most_runs(num_tokens: int, rate: float = 1.0, most: int = 0) -> int:
    """Return the maximum number of separate runs of selected tokens, if `rate` and `most` set the budget.

    >>> most_runs(511, 0.15), most_runs(511, 0.15, most=20), most_runs(511)
    (77, 20, 256)
    """
    selected = max(1, ceil(rate * num_tokens - 1e-9))
    return min(selected, most or selected, (num_tokens + 1) // 2)


class OrdinaryWords:
    """The O ordinary words of a token range, in order. Special tokens are not ordinary words.

    A word that begins before the range counts as a word from the start of the range. `long_O`: number of tokens of each
    word, int64.

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

    def units(self, selected: Sequence[int], firsts: Sequence[int]) -> Ints:
        """Return the column `hits` for these selected words.

        A unit begins at each word in `firsts` and after each special token.
        """
        is_selected_O = np.zeros(len(self.long_O), dtype=bool)
        is_selected_O[selected] = True
        is_first_O = np.diff(self._ordinary_O, prepend=-2) > 1
        is_first_O[firsts] = True
        unit_W = np.zeros(len(self._long_W), dtype=np.int32)
        unit_W[self._ordinary_O] = np.where(is_selected_O, np.cumsum(is_selected_O & is_first_O), 0)
        return np.repeat(unit_W, self._long_W)


def number_runs(is_selected_S: Bools) -> Ints:
    """Number the runs of selected positions from 1; other positions get 0.

    >>> number_runs(np.array([True, True, False, False, True])).tolist()
    [1, 1, 0, 0, 2]
    """
    is_first_S = is_selected_S.copy()
    is_first_S[1:] &= ~is_selected_S[:-1]
    return np.where(is_selected_S, np.cumsum(is_first_S), 0).astype(np.int32)


def check(rate: float, most: int) -> None:
    require(0 < rate <= 1, "masking.rate", rate, "a fraction greater than 0 and at most 1")
    require(most >= 0, "masking.max_predictions_per_seq", most, "a positive number of tokens, or 0 for no maximum")
