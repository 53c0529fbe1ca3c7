"""Recipes and clusters written as YAML, in full or without default values, load as the same objects."""

from pathlib import Path

import pytest
import yaml

from orchestration.config import list_names, load, load_cluster, to_non_defaults, to_yaml


@pytest.mark.one_in(3)
@pytest.mark.parametrize("scale", ["", "tiny"])
@pytest.mark.parametrize("name", list_names("recipes"))
def test_a_recipe_survives_yaml_with_and_without_default_values(name: str, scale: str, tmp_path: Path) -> None:
    recipe = load(name, scale=scale)
    for text in (to_yaml(recipe), yaml.safe_dump(to_non_defaults(recipe))):
        (tmp_path / "recipe.yaml").write_text(text)
        assert load(str(tmp_path / "recipe.yaml")) == recipe


@pytest.mark.parametrize("name", list_names("clusters"))
def test_a_cluster_survives_yaml(name: str, tmp_path: Path) -> None:
    cluster = load_cluster(name, ["cluster.log_every=3"])
    (tmp_path / "cluster.yaml").write_text(to_yaml(cluster))
    assert load_cluster(str(tmp_path / "cluster.yaml")) == cluster


def test_only_values_that_differ_from_the_defaults_are_included() -> None:
    reported = to_non_defaults(load("bert_base"))
    assert "seed" not in reported
    assert "weight_decay" not in reported["optimizer"]
    assert reported["model"]["num_hidden_layers"] == 12  # has no default
    assert to_non_defaults(load("bert_base", ["optimizer.weight_decay=0.02"]))["optimizer"]["weight_decay"] == 0.02
