"""The ablations of papers are options of their recipes: each fits together, and its net takes a batch."""

import pytest
import torch

from orchestration.config import check, load, load_cluster
from tests import family

ELECTRA = {  # arXiv:2003.10555, 3.2 and 3.5
    "ELECTRA 15 %": ["objective.losses=[{kind: masked_tokens}, {kind: replaced, at: chosen}]"],
    "Replace MLM": ["objective.losses=[{kind: masked_tokens}, {kind: replaced, asks: original, at: chosen}]"],
    "All-tokens MLM": ["objective.losses=[{kind: masked_tokens}, {kind: replaced, asks: original}]"],
    "adversarial": ["objective.losses=[{kind: adversarial}, {kind: replaced}]"],
    "a sample is never right": ["trunk.allow_correct=false"],
    "uniform generator": ["trunk.samples=uniform", "objective.losses=[{kind: replaced}]"],
    "all weights tied": ["trunk.generator=1", "trunk.shared=all"],
    "two stages": ["trunk.generator=1", "trunk.samples=frozen", "objective.losses=[{kind: replaced}]", "start=DIR"],
}
ABLATIONS = [("electra_base", name, overrides) for name, overrides in ELECTRA.items()] + [
    ("xlnet_base", "no bidirectional data", ["data.segment.ways=forward"]),  # arXiv:1906.08237, table 6
    (
        "xlnet_base",
        "no memory",
        ["trunk.positions.memory=0", "trunk.positions.reuse=0", "data.segment={kind: packed, fill: tokens}"],
    ),
    ("transformer_xl_base", "tokens see as many", ["trunk.positions.same_length=true"]),  # the authors' evaluations
    ("unilm_large", "a target from anywhere", ["data.segment.share=0.5"]),
]


@pytest.mark.parametrize(("recipe", "overrides"), [pytest.param(*case[::2], id=case[1]) for case in ABLATIONS])
def test_an_ablation_is_an_option_that_fits_together_and_takes_a_batch(recipe: str, overrides: list[str]) -> None:
    one = load(recipe, overrides, scale="tiny")
    assert list(check(one, load_cluster("local", ["workers=1"]))) == []
    (batch,) = family.loader(one, steps=1).at(0)
    torch.manual_seed(0)
    scores = family.model(one)({name: torch.from_numpy(array) for name, array in batch.items()})
    assert {loss.kind for loss in one.objective.losses} <= set(scores)
    assert all(bool(score.loss.isfinite()) for score in scores.values())
