"""The fractions of the groups of a mixture in the training tokens, as the corpus file and the recipe give them."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from orchestration.config import Recipe
from pipeline.spec import Corpus
from preprocessing.blends import weights_of
from preprocessing.manifest import Manifest


def describe_mixture(corpus: Corpus, built: Path | None = None) -> list[str]:
    """The fractions of the groups in the training tokens, in one line; [] if the corpus is not a mixture.

    If they depend on the sizes of the groups, `built` is the directory of the corpus, if it exists.
    """
    if not corpus.mixture:
        return []
    if corpus.shares:
        weights = {group.name: group.weight or 0 for group in corpus.mixture}
        return [f"mixture: {_describe_weights(weights)}"]
    alpha = corpus.mixture_sampling_alpha
    if alpha is None:
        how = "epochs over each group: " + ", ".join(f"{group.epochs:g} {group.name}" for group in corpus.mixture)
    else:
        how = f"weights are the tokens of each group to the power of {alpha:g}"
    if built is None:
        return [f"mixture: {how}; the fractions follow from the corpus"]
    shares = {name: group.share for name, group in Manifest.load(built).mixture.items()}
    return [f"mixture: {how}; fractions of the training tokens: {_list_shares(shares)}"]


def describe_built_mixture(corpus: Corpus, built: Path) -> list[str]:
    """The fractions of the groups in the training tokens, if they depend on the sizes of the groups; otherwise []."""
    return [] if corpus.shares else describe_mixture(corpus, built)


def describe_shares(manifest: Manifest) -> list[str]:
    """The fractions of the groups in the training tokens of a finished corpus; [] if it is not a mixture."""
    shares = {name: group.share for name, group in manifest.mixture.items()}
    return [f"mixture: fractions of the training tokens: {_list_shares(shares)}"] if shares else []


def describe_blends(recipe: Recipe, names: Sequence[str]) -> list[str]:
    """The weights with which the recipe replaces those of the groups `names`, one line for each phase.

    Raises BadInput for unknown groups.
    """
    lines = list[str]()
    if recipe.data.mixture:
        weights_of(recipe.data.mixture, names, "data.mixture")
        lines = [f"data.mixture: {_describe_weights(recipe.data.mixture)}"]
    for number, phase in enumerate(recipe.phases):
        if phase.mixture:
            weights_of(phase.mixture, names, f"phases.{number}.mixture")
            lines.append(f"phases.{number}.mixture: {_describe_weights(phase.mixture)}")
    return lines


def _describe_weights(weights: Mapping[str, float]) -> str:
    total = sum(Fraction(str(weight)) for weight in weights.values())
    sums_up = "" if total in (1, 100) else f" (weights are divided by their sum, {float(total):g})"
    shares = {name: float(Fraction(str(weight)) / total) for name, weight in weights.items()}
    return f"fractions of the training tokens: {_list_shares(shares)}{sums_up}"


def _list_shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{100 * share:.2f} % {name}" for name, share in shares.items())
