"""Ablations of papers as recipe overrides: each combination is valid, and its model accepts a batch."""

import pytest
import torch

from orchestration.config import check, load, load_cluster
from tests import family

ELECTRA = {  # arXiv:2003.10555, 3.2 and 3.5
    "ELECTRA 15 %": ["losses=[{kind: masked_tokens}, {kind: replaced_token_detection, predict_at: masked}]"],
    "Replace MLM": [
        "losses=[{kind: masked_tokens}, {kind: replaced_token_detection, predict: original, predict_at: masked}]"
    ],
    "All-tokens MLM": ["losses=[{kind: masked_tokens}, {kind: replaced_token_detection, predict: original}]"],
    "adversarial": ["losses=[{kind: adversarial}, {kind: replaced_token_detection}]"],
    "sampled tokens are never correct": ["model.allow_correct=false"],
    "uniform generator": ["model.sample_from=uniform", "losses=[{kind: replaced_token_detection}]"],
    "all weights tied": ["model.generator_size_ratio=1", "model.weight_sharing=all"],
    "two stages": [
        "model.generator_size_ratio=1",
        "model.sample_from=frozen",
        "losses=[{kind: replaced_token_detection}]",
        "init_checkpoint=DIR",
    ],
}
ABLATIONS = [("electra_base", name, overrides) for name, overrides in ELECTRA.items()] + [
    ("xlnet_base", "no bidirectional data", ["data.packing.directions=forward"]),  # arXiv:1906.08237, table 6
    (
        "xlnet_base",
        "no memory",
        [
            "model.position_embedding.mem_len=0",
            "model.position_embedding.reuse_len=0",
            "data.packing={kind: contiguous, unit: token}",
        ],
    ),
    (
        "transformer_xl_base",
        "equal context for all tokens",
        ["model.position_embedding.same_length=true"],
    ),  # as in the authors' evaluations
    ("unilm_large", "random target segment", ["data.packing.negative_prob=0.5"]),
]


@pytest.mark.parametrize(("recipe", "overrides"), [pytest.param(*case[::2], id=case[1]) for case in ABLATIONS])
def test_ablation_is_valid_and_its_model_accepts_a_batch(recipe: str, overrides: list[str]) -> None:
    one = load(recipe, overrides, scale="tiny")
    assert list(check(one, load_cluster("local", ["num_workers=1"]))) == []
    (batch,) = family.loader(one, steps=1).at(0)
    torch.manual_seed(0)
    scores = family.model(one)({name: torch.from_numpy(array) for name, array in batch.items()})
    assert {loss.kind for loss in one.losses} <= set(scores)
    assert all(bool(score.loss.isfinite()) for score in scores.values())
