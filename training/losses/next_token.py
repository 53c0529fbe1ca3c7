"""Causal language modelling, and the decoder of a sequence to sequence."""

from typing import ClassVar, Literal

from preprocessing.spec import spec


@spec
class NextToken:
    """Predict each next token with the tied embedding (GPT-2 2), or what the decoder of a sequence to sequence says."""

    kind: Literal["next_token"] = "next_token"
    weight: float = 1.0
    bias: bool = False  # one for each token (XLM)
    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    visibility: ClassVar[str] = "causal"
