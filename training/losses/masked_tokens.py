"""Masked language modelling (BERT 3.1, task 1)."""

from typing import ClassVar, Literal

from preprocessing.spec import spec


@spec
class MaskedTokens:
    """Predict the chosen tokens: transform, tied embedding, bias (BERT 3.1, task 1)."""

    kind: Literal["masked_tokens"] = "masked_tokens"
    weight: float = 1.0
    transform: bool = True  # a linear, an activation and a norm before the table; XLM and XLNet have none
    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    visibility: ClassVar[str] = "full"
