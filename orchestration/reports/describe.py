"""A recipe in words, from what its parts say of themselves."""

from orchestration.config import Recipe
from training.losses import LossContext


def masking(recipe: Recipe) -> str:
    """What is masked, and how, shortly: the choice, or the rewrite where that one selects what is predicted."""
    masking, objective = recipe.masking, recipe.objective
    return objective.describe() if objective.selects else masking.describe()


def losses(recipe: Recipe) -> list[str]:
    """What the net predicts, a phrase for each loss, with its weight where that is not 1.

    >>> from orchestration.config import load
    >>> losses(load("electra_base"))
    ['masked tokens', '50 x replaced tokens']
    """
    context = loss_context(recipe)
    return [loss.describe(context) for loss in recipe.losses]


def loss_context(recipe: Recipe) -> LossContext:
    """What the words for a loss depend on beside the loss itself."""
    return LossContext(
        label_says=recipe.data.packing.label_says,
        target=recipe.objective.target if recipe.model.reads_source else "",
        permuted=recipe.model.hides_own_token,
    )


def format_number(number: float) -> str:
    """A large number, to two digits.

    >>> format_number(2_097_152_000_000)
    '2.1e12'
    """
    return f"{number:.2g}".replace("e+", "e")
