"""The tensors that a model declares are those of its module: names, shapes, fused tensors and slices."""

from functools import cache

import pytest
import torch

from orchestration.config import load
from preprocessing.tokenization import table_rows
from tests import family
from training.architectures import Share, cut_net
from training.model import build, shapes_of
from training.specs import Architecture

CHANGED = [
    ("albert_base", "model.parameter_sharing=attention model.num_hidden_groups=3"),
    ("albert_base", "model.parameter_sharing=feed_forward"),
    ("bert_base", "model.norm_position=pre model.head_dim=48 model.intermediate_size=1000 model.num_languages=3"),
    ("electra_small", "model.generator_size_ratio=1 model.weight_sharing=all"),
    ("electra_small", "model.sample_from=frozen model.generator_size_ratio=1"),
    ("electra_small", "model.sample_from=uniform"),
    ("electra_small", "model.weight_sharing=disentangled model.generator_num_hidden_layers=3"),
    ("bart_base", "model.embedding_norm=false model.norm_position=pre model.bias=false"),
    ("t5_base", "model.bias=true model.norm_type=layernorm"),
    ("transformer_xl_base", "model.token_embedding.div_val=1"),
]
DETECTS = "losses=[{kind: replaced_token_detection}]"


@cache
def architectures() -> dict[str, Architecture]:
    """Each architecture of the recipes, and some changed ones, by the name of a recipe and the changes."""
    found = {family.recipe(name).model: name for name in family.RECIPES}
    changed = {
        f"{name} {changes}": load(name, [*changes.split(), *([DETECTS] if "sample_from" in changes else [])]).model
        for name, changes in CHANGED
    }
    return {name: trunk for trunk, name in found.items()} | changed


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(architectures()))
def test_a_module_has_the_tensors_that_its_architecture_declares(name: str) -> None:
    trunk = architectures()[name]
    rows = table_rows(family.recipe(name.split()[0]).data.tokenizer)
    with torch.device("meta"):
        model = torch.nn.ModuleDict({"trunk": build(trunk, rows)})
    declared = {f"trunk.{one.name}": one for one in trunk.tensors(rows).parameters()}
    actual = {key: tuple(weight.shape) for key, weight in model.named_parameters()}
    assert {key: one.shape for key, one in declared.items()} == actual
    fused = {key: tuple(shape[0] for shape in shapes) for key, shapes in shapes_of(model).items()}
    assert {key: one.fused or one.shape[:1] for key, one in declared.items()} == fused
    if not trunk.split_over(2):
        with torch.device("meta"):
            axes = {key: cut.axis for key, cut in cut_net(model, Share(0, 2)).items()}
        assert {key: one.axis for key, one in declared.items() if one.axis is not None} == axes
