"""Which losses fit which trunk."""

from collections.abc import Sequence

from preprocessing.spec import require
from training.losses.part import LossPart
from training.specs import Architecture


def check_losses(trunk: Architecture, losses: Sequence[LossPart]) -> None:
    """Raise ValueError, in one line, where these losses cannot be combined with this trunk."""
    kinds = [loss.kind for loss in losses]
    require(len(set(kinds)) == len(kinds) > 0, "losses", kinds, "one or more kinds, each once")
    for line in (*(loss.fits(trunk) for loss in losses), trunk.fits(losses)):
        if line:
            raise ValueError(line)
