"""Adversarial training of a generator (ELECTRA 3.2)."""

from typing import ClassVar, Literal

from preprocessing.spec import spec


@spec
class Adversarial:
    """Fill masks with what the discriminator takes for the text's own (ELECTRA 3.2), and not with what was there."""

    kind: Literal["adversarial"] = "adversarial"
    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    visibility: ClassVar[str] = "full"
