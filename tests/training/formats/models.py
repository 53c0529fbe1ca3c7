"""Models at tiny scale: those of recipes, and of formats that no recipe has."""

from dataclasses import replace

from orchestration.config import Recipe
from tests.family import recipe
from training.specs import Architecture, Decoder, EncoderDecoder

WITHOUT_RECIPE = {"opt": "gpt2", "mbart": "bart_base"}  # the nearest recipe


def tiny_recipe(name: str) -> Recipe:
    """A recipe, or that nearest to a format with the model of the format."""
    one = recipe(WITHOUT_RECIPE.get(name, name), "tiny")
    return replace(one, model=_model_of(name, one.model)) if name in WITHOUT_RECIPE else one


def _model_of(name: str, trunk: Architecture) -> Architecture:
    if name == "opt":
        assert isinstance(trunk, Decoder)
        rows = trunk.longest + 2
        positions = replace(trunk.position_embedding, max_position_embeddings=rows, offset=2)
        return replace(trunk, activation="relu", position_embedding=positions)
    assert isinstance(trunk, EncoderDecoder)
    return replace(trunk, norm_position="pre", scale_embedding=True)
