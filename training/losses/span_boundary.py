"""The span boundary objective (SpanBERT 3.2)."""

from typing import ClassVar, Literal

from preprocessing.spec import require, spec


@spec
class SpanBoundary:
    """Predict each token of a chosen span from the tokens around the span and its place in it (SpanBERT 3.2)."""

    kind: Literal["span_boundary"] = "span_boundary"
    weight: float = 1.0
    positions: int = 15  # tokens of a span that are asked, from its first
    position_width: int = 200
    needs: ClassVar[frozenset[str]] = frozenset({"labels", "hits"})
    visibility: ClassVar[str] = "full"

    def __post_init__(self) -> None:
        for name in ("positions", "position_width"):
            require(getattr(self, name) >= 1, f"losses.{name}", getattr(self, name), "a whole number from 1 up")
