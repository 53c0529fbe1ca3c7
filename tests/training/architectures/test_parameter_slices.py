"""The shard of a model that each worker holds, and the random numbers that it draws."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from orchestration.config import load
from preprocessing.tokenization import table_rows
from tests.training.batches import collate_unpadded, random_rows
from training.architectures import WHOLE, PipelineStage, Share, StageInputs
from training.engines import TensorSlice, tensor_shares_of
from training.losses import MaskedTokens, SentencePair
from training.model import Model, materialize
from training.specs import Encoder, EngineSettings, LearnedPositions, count_weights

GIANTS = ("megatron_8b", "gpt3_175b", "mt_nlg_530b")


def shared(number: int, of: int) -> Model:
    trunk = Encoder(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=4,
        position_embedding=LearnedPositions(max_position_embeddings=16),
    )
    return Model(trunk, (MaskedTokens(),), 101, seed=3, share=Share(number, of))


def test_queries_keys_and_values_are_cut_by_heads() -> None:
    whole = shared(0, 1).get_parameter("trunk.blocks.0.attention.qkv.weight")
    mine = shared(1, 4).get_parameter("trunk.blocks.0.attention.qkv.weight")
    of_head = whole.view(3, 4, 8, 32)[:, 1].reshape(24, 32)
    assert torch.equal(mine, of_head)


@pytest.mark.parametrize("of", [2, 4])
def test_shards_are_initialized_like_the_whole_model(of: int) -> None:
    whole, shares = shared(0, 1), [shared(number, of) for number in range(of)]
    for name, parameter in whole.named_parameters():
        seen = torch.zeros_like(parameter)
        for share in shares:
            whole_one = tuple(parameter.shape), TensorSlice(0, ((0, len(parameter)),))
            shape, cut = tensor_shares_of(share, is_first=True).cuts.get(name, whole_one)
            assert shape == parameter.shape
            at = torch.cat([torch.arange(first, stop) for first, stop in cut.pieces])
            assert torch.equal(share.get_parameter(name), parameter.index_select(cut.dimension, at)), name
            seen.index_fill_(cut.dimension, at, 1.0)
        assert bool((seen == 1).all()), name


@pytest.mark.parametrize("number", [0, 1])
def test_a_shard_that_is_materialized_by_tensor_equals_one_that_is_built_at_once(number: int) -> None:
    whole, started = shared(number, 2), "trunk.blocks.0.attention.qkv.weight"
    with torch.device("meta"):
        born = shared(number, 2)
    given = shared(0, 1).get_parameter(started).detach() + 1
    born.given = {started: lambda: given}
    materialize(born, nn.Parameter)
    for name, weight in whole.named_parameters():
        assert torch.equal(born.get_parameter(name), weight + (name == started)), name


@pytest.mark.parametrize("recipe", GIANTS)
@pytest.mark.parametrize("number", [0, 7])
def test_a_worker_of_a_giant_has_the_stated_number_of_parameters(recipe: str, number: int) -> None:
    giant, share = load(recipe), Share(number, 8)
    trunk, losses, rows = giant.model, giant.losses, table_rows(giant.data.tokenizer)
    with torch.device("meta"):
        mine = Model(trunk, losses, rows, giant.seed, share)
    weights, within = trunk.weights(rows), share.within(rows)
    layers = sum(part.copies * (part.split // 8 + part.whole) for part in weights.layers)
    heads = sum(count_weights(loss.tensors(trunk, rows)).total for loss in losses)
    assert mine.num_parameters == (within.stop - within.start) * trunk.table_width + layers + weights.others + heads


STAGES = [("megatron_8b", 4), ("gpt3_175b", 8), ("mt_nlg_530b", 35)]


@pytest.mark.parametrize(("recipe", "of"), STAGES)
@pytest.mark.parametrize("end", ["first", "middle", "last"])
def test_a_pipeline_stage_of_a_giant_has_only_its_own_layers(recipe: str, of: int, end: str) -> None:
    giant, share, number = load(recipe), Share(3, 8), {"first": 0, "middle": of // 2, "last": of - 1}[end]
    trunk, losses, rows = giant.model, giant.losses, table_rows(giant.data.tokenizer)
    with torch.device("meta"):
        mine = Model(trunk, losses, rows, giant.seed, share, PipelineStage(number, of))
    weights, within = trunk.weights(rows), share.within(rows)
    assert trunk.num_hidden_layers % of == 0
    wanted = sum(part.copies // of * (part.split // 8 + part.whole) for part in weights.layers)
    above = 2 * trunk.hidden_size  # a norm
    if end == "first":
        wanted += (within.stop - within.start) * trunk.table_width + weights.others - above
    elif end == "last":
        wanted += above + sum(count_weights(loss.tensors(trunk, rows)).total for loss in losses)
    assert mine.num_parameters == wanted


def small(stage: PipelineStage, share: Share = WHOLE) -> Model:
    trunk = Encoder(
        num_hidden_layers=5,
        hidden_size=32,
        num_attention_heads=4,
        position_embedding=LearnedPositions(max_position_embeddings=16),
    )
    return Model(trunk, (MaskedTokens(), SentencePair()), 101, seed=3, share=share, stage=stage)


@pytest.mark.parametrize("of", [2, 3, 5])
def test_pipeline_stages_are_initialized_like_the_whole_model(of: int) -> None:
    whole, seen = dict(small(PipelineStage()).named_parameters()), list[str]()
    for number in range(of):
        mine = small(PipelineStage(number, of))
        assert mine.stages == small(PipelineStage(0, of)).stages
        assert mine.whole_shapes == {name: tuple(weight.shape) for name, weight in whole.items()}
        for name, weight in mine.named_parameters():
            assert torch.equal(weight, whole[name])
            assert mine.stages[name] == number
            seen.append(name)
    assert sorted(seen) == sorted(whole)


def test_consecutive_stages_compute_the_same_as_the_whole_model() -> None:
    whole, batch = small(PipelineStage()).eval(), collate_unpadded(random_rows([9, 7, 16], 101))
    states: torch.Tensor | None = None
    for number in range(3):
        made = small(PipelineStage(number, 3)).eval()(batch, StageInputs(states, whole.trunk.table))
        states = None if isinstance(made, dict) else made
    wanted = whole(batch)
    assert {kind: score.loss for kind, score in made.items()} == {kind: one.loss for kind, one in wanted.items()}


def dropout_of(share: Share) -> tuple[torch.Tensor, torch.Tensor]:
    """Dropout inside a split layer and after it."""
    torch.manual_seed(5)
    with share.noise(0.5):
        inside = F.dropout(torch.ones(100))
    return inside, F.dropout(torch.ones(100))


def test_workers_draw_different_dropout_for_heads_and_equal_dropout_for_states() -> None:
    (first, behind), (second, behind_too) = dropout_of(Share(0, 2)), dropout_of(Share(1, 2))
    assert not torch.equal(first, second)
    assert torch.equal(behind, behind_too)
    assert torch.equal(first, dropout_of(Share(0, 2))[0])


def test_an_unsplit_model_draws_the_usual_dropout() -> None:
    first, _ = dropout_of(Share())
    torch.manual_seed(5)
    assert torch.equal(first, F.dropout(torch.ones(100)))


@pytest.mark.parametrize("key", ["tensor_parallel_size", "sequence_parallel_size", "pipeline_parallel_size"])
def test_invalid_degrees_and_compilation_with_them_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"invalid {key}: got 0, expected at least 1 (worker|stage)"):
        EngineSettings(**{key: 0})
    with pytest.raises(
        ValueError,
        match="invalid torch_compile: got True, expected false with tensor, pipeline or sequence parallelism",
    ):
        EngineSettings(torch_compile=True, **{key: 2})
