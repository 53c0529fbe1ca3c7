"""What a worker has of a net that several share, and what it draws."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from orchestration.config import load
from preprocessing.vocab import table_rows
from training.engines import Cut, shares_of
from training.losses import MaskedTokens
from training.model import Model, materialise
from training.specs import Encoder, Learned, Machine
from training.trunks import Share

GIANTS = ("megatron_8b", "gpt3_175b", "mt_nlg_530b")


def shared(number: int, of: int) -> Model:
    trunk = Encoder(layers=1, width=32, heads=4, positions=Learned(max=16))
    return Model(trunk, (MaskedTokens(),), 101, seed=3, share=Share(number, of))


def test_queries_keys_and_values_are_cut_by_heads() -> None:
    whole = shared(0, 1).get_parameter("trunk.blocks.0.attention.qkv.weight")
    mine = shared(1, 4).get_parameter("trunk.blocks.0.attention.qkv.weight")
    of_head = whole.view(3, 4, 8, 32)[:, 1].reshape(24, 32)
    assert torch.equal(mine, of_head)


@pytest.mark.parametrize("of", [2, 4])
def test_the_shares_of_a_net_begin_as_the_whole_one(of: int) -> None:
    whole, shares = shared(0, 1), [shared(number, of) for number in range(of)]
    for name, parameter in whole.named_parameters():
        seen = torch.zeros_like(parameter)
        for share in shares:
            whole_one = tuple(parameter.shape), Cut(0, ((0, len(parameter)),))
            shape, cut = shares_of(share, is_first=True).cuts.get(name, whole_one)
            assert shape == parameter.shape
            at = torch.cat([torch.arange(first, stop) for first, stop in cut.pieces])
            assert torch.equal(share.get_parameter(name), parameter.index_select(cut.dimension, at)), name
            seen.index_fill_(cut.dimension, at, 1.0)
        assert bool((seen == 1).all()), name


@pytest.mark.parametrize("number", [0, 1])
def test_a_share_that_is_born_by_tensors_is_that_of_a_net_that_is_made_at_once(number: int) -> None:
    whole, started = shared(number, 2), "trunk.blocks.0.attention.qkv.weight"
    with torch.device("meta"):
        born = shared(number, 2)
    given = shared(0, 1).get_parameter(started).detach() + 1
    born.given = {started: lambda: given}
    materialise(born, nn.Parameter)
    for name, weight in whole.named_parameters():
        assert torch.equal(born.get_parameter(name), weight + (name == started)), name


@pytest.mark.parametrize("recipe", GIANTS)
@pytest.mark.parametrize("number", [0, 7])
def test_a_worker_has_of_a_giant_what_its_parts_state(recipe: str, number: int) -> None:
    giant, share = load(recipe), Share(number, 8)
    trunk, losses, rows = giant.trunk, giant.objective.losses, table_rows(giant.data.vocab)
    with torch.device("meta"):
        mine = Model(trunk, losses, rows, giant.seed, share)
    weights, within = trunk.weights(rows), share.within(rows)
    layers = sum(part.copies * (part.split // 8 + part.whole) for part in weights.layers)
    heads = sum(loss.weights(trunk, rows) for loss in losses)
    assert mine.num_parameters == (within.stop - within.start) * trunk.table_width + layers + weights.others + heads


def drawn(share: Share) -> tuple[torch.Tensor, torch.Tensor]:
    """What drops out in a layer that is split, and behind it."""
    torch.manual_seed(5)
    with share.noise(0.5):
        inside = F.dropout(torch.ones(100))
    return inside, F.dropout(torch.ones(100))


def test_workers_drop_out_other_heads_and_the_same_states() -> None:
    (first, behind), (second, behind_too) = drawn(Share(0, 2)), drawn(Share(1, 2))
    assert not torch.equal(first, second)
    assert torch.equal(behind, behind_too)
    assert torch.equal(first, drawn(Share(0, 2))[0])


def test_a_net_that_is_not_split_draws_as_ever() -> None:
    first, _ = drawn(Share())
    torch.manual_seed(5)
    assert torch.equal(first, F.dropout(torch.ones(100)))


@pytest.mark.parametrize("key", ["tensor_parallel", "sequence_parallel"])
def test_degrees_are_whole_numbers_and_nothing_is_compiled_with_them(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key} is 0, allowed is a number of workers from 1 up"):
        Machine(**{key: 0})
    with pytest.raises(ValueError, match="compile is True, allowed is false with tensor_parallel or sequence_parallel"):
        Machine(compile=True, **{key: 2})
