"""Replaced token detection (ELECTRA 3.1)."""

from typing import ClassVar, Literal

from preprocessing.spec import spec


@spec
class Replaced:
    """Tell for each token whether the generator has put it there (ELECTRA 3.1), or what it was (3.4)."""

    kind: Literal["replaced"] = "replaced"
    weight: float = 50.0
    asks: Literal["replaced", "original"] = "replaced"
    at: Literal["all", "chosen"] = "all"  # chosen: where the generator was asked (ELECTRA 15 %, Replace MLM)
    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    visibility: ClassVar[str] = "full"
