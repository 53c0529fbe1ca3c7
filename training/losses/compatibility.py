"""Check of a combination of losses and a model."""

from collections.abc import Sequence

from preprocessing.spec import require
from training.losses.part import LossPart
from training.specs import Architecture


def check_losses(trunk: Architecture, losses: Sequence[LossPart]) -> None:
    """Raise ValueError, in one line, if these losses cannot be combined with this model."""
    kinds = [loss.kind for loss in losses]
    require(len(set(kinds)) == len(kinds) > 0, "losses", kinds, "one or more different kinds")
    heads = [loss.head_name for loss in losses]
    require(len(set(heads)) == len(heads), "losses", kinds, "one loss for each head")
    for line in (*(loss.fits(trunk) for loss in losses), trunk.fits(losses)):
        if line:
            raise ValueError(line)
