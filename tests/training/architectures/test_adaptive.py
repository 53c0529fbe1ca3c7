"""Adaptive embeddings and softmax: one distribution over all tokens, torch's values if untied, published sizes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training import parity
from tests.training.batches import collate_unpadded, random_rows
from training.architectures.adaptive import AdaptiveTable
from training.losses import NextToken
from training.losses.heads import build_head, cross_entropy
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import AdaptiveEmbedding, Decoder, RelativePositions

XL: dict[str, Any] = {"position_embedding": RelativePositions(), "norm_position": "post", "activation": "relu"}
SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "init_std": 0.2,
    "token_embedding": AdaptiveEmbedding(cutoffs=(10, 20, 40)),
}
TRUNK = Decoder(**SIZES, **XL, hidden_dropout=0.0, attention_dropout=0.0)
VOCAB = 50
SHRINKS = pytest.mark.parametrize("shrink", [1, 2])
WT103 = (20_000, 40_000, 200_000)


def shrunk(shrink: int) -> Decoder:
    return replace(TRUNK, token_embedding=AdaptiveEmbedding(cutoffs=(10, 20, 40), div_val=shrink))


def built(trunk: Decoder) -> Model:
    return parity.built(ModelSpec(model=trunk, losses=(NextToken(bias=True),), vocab_size=VOCAB))


def score_of(head: nn.Module, hidden_MD: Tensor, target_M: Tensor, table: tuple[Tensor, ...]) -> cross_entropy.Score:
    return head(hidden_MD, {"targets_at": torch.arange(len(target_M)), "targets": target_M}, table)


@SHRINKS
def test_probabilities_of_all_tokens_sum_to_one(shrink: int) -> None:
    model = built(shrunk(shrink))
    state_1D = torch.randn(1, 32, generator=torch.Generator().manual_seed(1))
    head, table = model.heads["next_token"], model.trunk.table
    losses_V = [score_of(head, state_1D, torch.tensor([token]), table).loss for token in range(VOCAB)]
    assert torch.stack(losses_V).neg().exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_untied_loss_and_gradients_equal_those_of_torch() -> None:
    torch.manual_seed(0)
    oracle = nn.AdaptiveLogSoftmaxWithLoss(32, VOCAB, [10, 20, 40], div_value=2, head_bias=True)
    with torch.device("meta"):
        head = build_head(NextToken(bias=True), shrunk(2), VOCAB)
    head = head.to_empty(device="cpu")
    with torch.no_grad():
        head.project.weight.copy_(torch.eye(32))
        head.clusters.copy_(oracle.head.weight[10:])
        head.cluster_bias.copy_(oracle.head.bias[10:])
        head.bias.zero_()[:10] = oracle.head.bias[:10]
    tables = [oracle.head.weight[:10], *(tail[1].weight for tail in oracle.tail)]
    projections = [torch.zeros(32, 32), *(tail[0].weight.T for tail in oracle.tail)]
    table = [part.detach().clone().requires_grad_() for part in (*tables, *projections)]
    hidden_MD, target_M = torch.randn(60, 32, requires_grad=True), torch.randint(VOCAB, (60,))
    wanted, found = oracle(hidden_MD, target_M).loss, score_of(head, hidden_MD, target_M, tuple(table)).loss / 60
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)
    gradients_wanted = torch.autograd.grad(wanted, [hidden_MD, oracle.head.weight, *oracle.tail.parameters()])
    leaves = [hidden_MD, head.clusters, *table[:4], *table[5:]]
    found_hidden, found_clusters, *found_parts = torch.autograd.grad(found, leaves)
    tails = [part for cluster in range(1, 4) for part in (found_parts[3 + cluster].T, found_parts[cluster])]
    gradients_found = [found_hidden, torch.cat([found_parts[0], found_clusters]), *tails]
    torch.testing.assert_close(gradients_found, list(gradients_wanted), rtol=1e-5, atol=1e-6)


@pytest.mark.one_in(4)
@SHRINKS
def test_correct_targets_have_the_best_cluster_and_the_best_position_in_it(shrink: int) -> None:
    model = built(shrunk(shrink))
    head, table = model.heads["next_token"], model.trunk.table
    states_MD = torch.randn(40, 32, generator=torch.Generator().manual_seed(1))
    asked = [(state_D[None], torch.tensor([token])) for state_D in states_MD for token in range(VOCAB)]
    right_MV = torch.stack([score_of(head, *one, table).correct for one in asked]).view(40, VOCAB)
    assert right_MV.sum(1).tolist() == [1] * 40
    assert (right_MV.argmax(1) >= 10).any()
    assert score_of(head, states_MD, right_MV.argmax(1), table).correct == 40


def test_frequent_targets_do_not_compute_logits_over_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    model, shapes = built(TRUNK), list[tuple[int, int]]()
    plain = cross_entropy._LinearCrossEntropy.forward

    def spy(ctx: Any, feature_MD: Tensor, table_VD: Tensor, *rest: Any) -> Any:
        shapes.append((len(feature_MD), len(table_VD)))
        return plain(ctx, feature_MD, table_VD, *rest)

    monkeypatch.setattr(cross_entropy._LinearCrossEntropy, "forward", spy)
    score_of(model.heads["next_token"], torch.randn(3, 32), torch.tensor([1, 9, 25]), model.trunk.table)
    assert shapes == [(3, 13), (0, 10), (1, 20), (0, 10)]


def test_embeddings_are_cluster_rows_projected_to_the_model_width() -> None:
    table = built(shrunk(2)).trunk.tokens
    assert isinstance(table, AdaptiveTable)
    ids = torch.tensor([[45, 3, 10], [9, 39, 40]])
    places = {45: (3, 5), 3: (0, 3), 10: (1, 0), 9: (0, 9), 39: (2, 19), 40: (3, 0)}
    wanted = [table.widen[i].weight @ table.clusters[i].weight[at] for i, at in places.values()]
    torch.testing.assert_close(table(ids).flatten(0, 1), torch.stack(wanted), rtol=0, atol=1e-5)
    assert [cluster.embedding_dim for cluster in table.clusters] == [32, 16, 8, 4]


@SHRINKS
def test_every_weight_gets_a_gradient_even_if_a_cluster_has_no_target(shrink: int) -> None:
    model = built(replace(TRUNK, token_embedding=AdaptiveEmbedding(cutoffs=(10, 20), div_val=shrink)))
    batch = collate_unpadded(random_rows([8, 8], VOCAB))
    model(batch | {"targets": batch["targets"] % 10})["next_token"].loss.backward()
    assert [name for name, tensor in model.named_parameters() if tensor.grad is None] == []


@SHRINKS
def test_tied_tables_are_counted_once(shrink: int) -> None:
    model = built(replace(TRUNK, token_embedding=AdaptiveEmbedding(cutoffs=(10, 20), div_val=shrink)))
    ids = {id(tensor) for tensor in model.parameters()}
    for part in model.trunk.table:
        assert id(part) in ids or part._base is model.trunk.tokens.weight


@pytest.mark.parametrize(
    ("sizes", "tables", "vocab_size", "count"),
    [
        pytest.param(
            {"num_hidden_layers": 16, "hidden_size": 410, "num_attention_heads": 10, "intermediate_size": 2100},
            AdaptiveEmbedding(cutoffs=WT103),
            267_735,
            151_107_538,
            id="base",
        ),
        pytest.param(
            {"num_hidden_layers": 18, "hidden_size": 1024, "num_attention_heads": 16},
            AdaptiveEmbedding(cutoffs=WT103, div_val=4),
            267_735,
            285_170_506,
            id="large",
        ),
        pytest.param(
            {"num_hidden_layers": 18, "hidden_size": 1024, "num_attention_heads": 8},
            AdaptiveEmbedding(cutoffs=(60_000, 100_000, 640_000), div_val=4),
            793_471,
            357_468_018,
            id="lm1b",
        ),
    ],
)
def test_model_has_the_published_number_of_weights(
    sizes: dict[str, int], tables: AdaptiveEmbedding, vocab_size: int, count: int
) -> None:
    with torch.device("meta"):
        trunk = Decoder(**sizes, **XL, token_embedding=tables)
        assert Model(trunk, (NextToken(bias=True),), vocab_size, seed=0).num_parameters == count


def test_projections_are_initialized_with_half_the_deviation_of_the_others() -> None:
    model = Model(replace(shrunk(2), hidden_size=128, init_std=0.02), (NextToken(bias=True),), VOCAB, seed=0)
    deviation = {name: float(tensor.detach().std()) for name, tensor in model.named_parameters() if tensor.ndim > 1}
    projections = [name for name in deviation if ".widen." in name or ".project." in name]
    assert {name.split(".")[0] for name in projections} == {"trunk", "heads"}
    for name, found in deviation.items():
        assert found == pytest.approx(0.01 if name in projections else 0.02, rel=0.2), name


def test_clusters_beyond_the_vocabulary_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"invalid model\.token_embedding\.cutoffs: got \[10, 20, 50\], expected "
        r"numbers below the vocabulary size 50",
    ):
        built(replace(TRUNK, token_embedding=AdaptiveEmbedding(cutoffs=(10, 20, 50))))
