"""Descriptions of a recipe, made of the descriptions of its parts."""

from orchestration.config import Recipe
from training.losses import LossContext


def masking(recipe: Recipe) -> str:
    """A short description of the masking, or of the objective if that selects the predicted tokens."""
    masking, objective = recipe.masking, recipe.objective
    return objective.describe() if objective.selects else masking.describe()


def losses(recipe: Recipe) -> list[str]:
    """A description of each loss, with its weight unless that is 1.

    >>> from orchestration.config import load
    >>> losses(load("electra_base"))
    ['masked tokens', '50 x replaced tokens']
    """
    context = loss_context(recipe)
    return [loss.describe(context) for loss in recipe.losses]


def loss_context(recipe: Recipe) -> LossContext:
    """The facts about a recipe that descriptions of its losses need."""
    return LossContext(
        label_says=recipe.data.packing.label_says,
        target=recipe.objective.target if recipe.model.reads_source else "",
        permuted=recipe.model.hides_own_token,
    )


def format_number(number: float) -> str:
    """A large number with two digits, as text.

    >>> format_number(2_097_152_000_000)
    '2.1e12'
    """
    return f"{number:.2g}".replace("e+", "e")
