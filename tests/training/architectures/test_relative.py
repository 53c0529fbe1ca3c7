"""Transformer-XL compared with an oracle, with and without a memory; a memory is equivalent to a longer sequence."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training import parity
from tests.training.batches import collate_padded, collate_unpadded, random_rows
from training.architectures import relative
from training.architectures.memory import RecalledMemory
from training.losses import NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import AdaptiveEmbedding, AlternatingWindow, Decoder, LearnedPositions, RelativePositions

XL: dict[str, Any] = {"position_embedding": RelativePositions(mem_len=8), "norm_position": "post", "activation": "relu"}
TRUNK = Decoder(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    init_std=0.2,
    **XL,
)
VOCAB = 50


def relative_to(trunk: Decoder = TRUNK, **keys: Any) -> Decoder:
    """The trunk with other values of its positions."""
    return replace(trunk, position_embedding=replace(trunk.position_embedding, **keys))


def built(trunk: Decoder = TRUNK) -> Model:
    return parity.built(ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=VOCAB))


def segments(length: int, parts: int, rows: int = 3) -> list[dict[str, Tensor]]:
    """A batch of equally long random sequences, cut into parts that continue each other."""
    whole, size = random_rows([length] * rows, VOCAB), length // parts
    cuts = [
        [{name: row[name][part * size :][:size] for name in ("input_ids", "token_type_ids", "labels")} for row in whole]
        for part in range(parts)
    ]
    return [in_memory_slot(collate_unpadded(rows), fresh=part == 0) for part, rows in enumerate(cuts)]


def in_memory_slot(batch: dict[str, Tensor], fresh: bool | Sequence[bool], slot: int = 0) -> dict[str, Tensor]:
    """The batch with its memory slot, and which of its sequences start without a memory."""
    fresh_B = torch.as_tensor(fresh).expand(len(batch["lengths"]))
    return batch | {"slot": torch.tensor(slot), "fresh": fresh_B}


def with_xlnet_names(model: Model, state: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Tensors of the trunk with XLNet's names and shapes."""
    heads = model.trunk.trunk.num_attention_heads, model.trunk.trunk.width_of_head
    names = {"query": ["q"], "key_value": ["k", "v"], "distance": ["r"]}
    names |= {"up": ["layer_1"], "down": ["layer_2"]}
    for ours, tensor in state.items():
        match ours.split("."):
            case ["tokens", _]:
                yield "word_embedding.weight", tensor
            case ["blocks", number, "attention", "out", _]:
                yield f"layer.{number}.rel_attn.o", tensor.unflatten(1, heads)
            case ["blocks", number, "attention", "biases", term]:
                yield f"layer.{number}.rel_attn.{'r_w_bias' if term == 'content' else 'r_r_bias'}", tensor
            case ["blocks", number, "attention", matrix, _]:
                for name, piece in zip(names[matrix], tensor.chunk(len(names[matrix])), strict=True):
                    yield f"layer.{number}.rel_attn.{name}", piece.T.unflatten(1, heads)
            case ["blocks", number, "attention_norm", leaf]:
                yield f"layer.{number}.rel_attn.layer_norm.{leaf}", tensor
            case ["blocks", number, "feed_forward_norm", leaf]:
                yield f"layer.{number}.ff.layer_norm.{leaf}", tensor
            case ["blocks", number, "feed_forward", linear, leaf]:
                yield f"layer.{number}.ff.{names[linear][0]}.{leaf}", tensor


def oracle(model: Model) -> Any:
    """XLNet, configured to compute Transformer-XL (reference/family.md, 0.3), with the weights of `model`."""
    trunk = model.trunk.trunk
    config = parity.hf().XLNetConfig(
        vocab_size=VOCAB,
        d_model=trunk.hidden_size,
        n_layer=trunk.num_hidden_layers,
        n_head=trunk.num_attention_heads,
        d_inner=trunk.inner_width,
        ff_activation="relu",
        attn_type="uni",
        layer_norm_eps=trunk.norm_eps,
        dropout=0.0,
        mem_len=trunk.mem_len,
        clamp_len=trunk.position_embedding.clamp_len or -1,
    )
    config._attn_implementation = "eager"
    theirs = parity.hf().XLNetModel(config).eval()
    state = dict(with_xlnet_names(model, dict(model.trunk.named_parameters())))
    state["word_embedding.weight"] = state["word_embedding.weight"] * trunk.hidden_size**0.5
    state |= {name.replace("layer.0", "layer.1"): bias for name, bias in state.items() if name.endswith("_bias")}
    unused = theirs.load_state_dict(state, strict=False)
    assert not unused.unexpected_keys
    assert {name.rpartition(".")[2] for name in unused.missing_keys} == {"mask_emb", "seg_embed", "r_s_bias"}
    return theirs


# The oracle.


@pytest.mark.parametrize("clamp", [0, 3])
def test_states_equal_those_of_the_oracle_with_and_without_a_memory(clamp: int) -> None:
    model = built(relative_to(clamp_len=clamp))
    theirs, memory = oracle(model), None
    for number, batch in enumerate(segments(18, parts=3)):
        with torch.no_grad():
            wanted = theirs(batch["input_ids"].view(3, 6), mems=memory, use_mems=True)
            found_TD = model.trunk(batch)
        memory = list(wanted.mems)
        torch.testing.assert_close(found_TD, wanted.last_hidden_state.flatten(0, 1), rtol=0, atol=1e-5)
        remembered = torch.stack(memory).transpose(1, 2)
        torch.testing.assert_close(model.trunk.memory.states[0], remembered, rtol=0, atol=1e-5)
        assert remembered.shape[2] == min(8, 6 * (number + 1))


def test_gradients_equal_those_of_the_oracle() -> None:
    model = built()
    theirs = oracle(model)
    first, batch = segments(12, parts=2)
    with torch.no_grad():
        memory = theirs(first["input_ids"].view(3, 6), use_mems=True).mems
        model.trunk(first)
    weight_TD = torch.randn(18, 32, generator=torch.Generator().manual_seed(1))
    (
        theirs(batch["input_ids"].view(3, 6), mems=list(memory)).last_hidden_state.flatten(0, 1) * weight_TD
    ).sum().backward()
    (model.trunk(batch) * weight_TD).sum().backward()
    wanted = {name: tensor.grad for name, tensor in theirs.named_parameters() if tensor.grad is not None}
    found = dict(with_xlnet_names(model, {name: tensor.grad for name, tensor in model.trunk.named_parameters()}))
    found["word_embedding.weight"] /= TRUNK.hidden_size**0.5  # theirs is our table times sqrt(width)
    for bias in ("r_w_bias", "r_r_bias"):  # our bias is shared by both layers
        wanted[f"layer.0.rel_attn.{bias}"] += wanted.pop(f"layer.1.rel_attn.{bias}")
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


# The memory.


def test_segments_with_a_memory_have_the_states_of_one_long_sequence() -> None:
    model = built(relative_to(mem_len=12))
    (whole,), parts = segments(12, parts=1), segments(12, parts=3)
    wanted_BSD = model.trunk(whole).view(3, 12, -1)
    found_BSD = torch.cat([model.trunk(part).view(3, 4, -1) for part in parts], dim=1)
    torch.testing.assert_close(found_BSD, wanted_BSD, rtol=0, atol=1e-5)


def test_a_memory_of_zeros_differs_from_an_empty_one() -> None:
    model, (batch, _) = built(), segments(12, parts=2)
    empty = model.trunk(batch)
    model.trunk.memory.states[0] = torch.zeros(2, 3, 8, 32)
    model.trunk.memory.counts[0] = torch.full((3,), 8)
    assert (model.trunk(batch | {"fresh": torch.zeros(3, dtype=torch.bool)}) - empty).abs().max() > 0.1


def test_a_fresh_sequence_clears_only_its_own_memory() -> None:
    model, (first, second) = built(), segments(12, parts=2)
    forgetful, mindful = model.trunk, built().trunk
    forgetful(first)
    mindful(first)
    mixed_BSD = forgetful(in_memory_slot(second, fresh=[False, True, False])).view(3, 6, -1)
    torch.testing.assert_close(mixed_BSD[[0, 2]], mindful(second).view(3, 6, -1)[[0, 2]], rtol=0, atol=1e-5)
    alone_BSD = built().trunk(in_memory_slot(second, fresh=True)).view(3, 6, -1)
    torch.testing.assert_close(mixed_BSD[1], alone_BSD[1], rtol=0, atol=1e-5)
    assert forgetful.memory.counts[0].tolist() == [8, 6, 8]


def test_cleared_memory_stays_cleared() -> None:
    net, (first, second, third) = built().trunk, segments(12, parts=3)
    for batch in (first, in_memory_slot(second, fresh=[False, True, False])):
        net(batch)
    remembering_BSD = net(third).view(3, 4, -1)
    other = built().trunk
    for batch in (in_memory_slot(second, fresh=True), third):
        found_BSD = other(batch).view(3, 4, -1)
    torch.testing.assert_close(remembering_BSD[1], found_BSD[1], rtol=0, atol=1e-5)


def test_the_memory_of_short_sequences_has_no_padding() -> None:
    net, rows = built().trunk, random_rows([5, 3], VOCAB)
    net(in_memory_slot(collate_padded(rows, 7), fresh=True))
    states, counts = net.memory.states[0], net.memory.counts[0]
    assert counts.tolist() == [5, 3]
    again = built().trunk
    again(in_memory_slot(collate_unpadded(rows), fresh=True))
    for row, count in enumerate(counts.tolist()):
        found, wanted = again.memory.states[0][:, row, -count:], states[:, row, -count:]
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def test_slots_are_separate_and_a_batch_without_a_slot_uses_none() -> None:
    net, (first, second) = built().trunk, segments(12, parts=2)
    net(first)
    kept = net.memory.states[0]
    net(in_memory_slot(second, fresh=True, slot=-1))
    net({name: column for name, column in second.items() if name not in ("slot", "fresh")})
    assert net.memory.states[0] is kept
    assert set(net.memory.states) == {0, -1}


def test_no_gradient_flows_through_the_memory() -> None:
    net, (first, second) = built().trunk, segments(12, parts=2)
    net(first)
    assert not net.memory.states[0].requires_grad
    net(second).sum().backward()  # a second backward pass through the first graph would raise an error
    unseen = torch.ones(VOCAB, dtype=torch.bool)
    unseen[second["input_ids"]] = False
    assert net.tokens.weight.grad[unseen].abs().max() == 0


def test_a_memory_is_restored_without_the_slots_of_evaluation() -> None:
    net, other, (first, second) = built().trunk, built().trunk, segments(12, parts=2)
    net(first)
    net(in_memory_slot(first, fresh=True, slot=-1))
    other.memory.load(net.memory.state(), torch.device("cpu"))
    assert set(other.memory.states) == {0}
    assert torch.equal(net(second), other(second))


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_same_length_attends_to_a_full_memory_for_any_segmentation(parts: int) -> None:
    net = built(relative_to(replace(TRUNK, num_hidden_layers=1), same_length=True)).trunk
    states_BSD = torch.cat([net(batch).detach().view(3, 24 // parts, 32) for batch in segments(24, parts)], dim=1)
    (whole,) = segments(24, parts=1)
    for changed in range(24):
        ids_BS = whole["input_ids"].view(3, 24).clone()
        ids_BS[:, changed] = (ids_BS[:, changed] + 1) % VOCAB
        other_BSD = (
            net(whole | {"input_ids": ids_BS.flatten(), "slot": torch.tensor(changed + 1)}).detach().view(3, 24, 32)
        )
        moved_S = (other_BSD - states_BSD).abs().amax(dim=(0, 2)) > 1e-5
        assert moved_S.nonzero().flatten().tolist() == list(range(changed, min(changed + 8, 24)))


def test_evaluation_uses_its_own_memory_length_and_distances() -> None:
    """In each mode, the model equals one that has only the settings of that mode. Transformer-XL evaluates with a
    longer memory (section 3.2)."""
    trunk = relative_to(mem_len=2, eval_mem_len=6, eval_clamp_len=5)
    net = built(trunk).trunk
    for plain, mode in ((relative_to(mem_len=2), True), (relative_to(mem_len=6, clamp_len=5, same_length=True), False)):
        other = built(plain).trunk
        other.load_state_dict(net.state_dict())
        net.train(mode)
        other.train(mode)
        for batch in segments(24, parts=3):
            torch.testing.assert_close(net(batch), other(batch), rtol=0, atol=0)
        assert next(iter(net.memory.states.values())).shape[2] == plain.mem_len
        net.memory.load({}, torch.device("cpu"))


def test_same_length_equals_a_band_of_the_dense_mask() -> None:
    net, band = built(relative_to(same_length=True)).trunk, built().trunk
    masked, real = [], relative.with_memory

    def dense(seen_BQS: Tensor, recalled: RecalledMemory) -> Tensor:
        seen = real(seen_BQS, recalled)
        place_Q1 = recalled.length + torch.arange(seen.shape[2])[:, None]
        masked.append(seen & (torch.arange(seen.shape[3]) > place_Q1 - 8))
        return masked[-1]

    for batch in segments(36, parts=3):
        wanted = net(batch)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(relative, "with_memory", dense)
            torch.testing.assert_close(band(batch), wanted, rtol=0, atol=1e-6)
    assert masked[-1].sum(-1).unique().tolist() == [8]
    assert not torch.equal(built().trunk(batch), wanted)


# Layouts, attention masks, sharing, sizes.


def test_unpadded_states_equal_padded_states() -> None:
    rows, net = random_rows([5, 8, 1, 3], VOCAB), built().trunk
    rectangle_BSD = net(collate_padded(rows, 10))
    wanted_TD = torch.cat([row[:length] for row, length in zip(rectangle_BSD, [5, 8, 1, 3], strict=True)])
    torch.testing.assert_close(net(collate_unpadded(rows)), wanted_TD, rtol=0, atol=1e-5)


def test_no_token_attends_to_a_later_one() -> None:
    net, (batch,) = built().trunk, segments(8, parts=1, rows=1)
    changed = batch | {
        "input_ids": torch.where(torch.arange(8) == 5, (batch["input_ids"] + 1) % VOCAB, batch["input_ids"])
    }
    before, after = net(batch), net(changed)
    assert torch.equal(before[:5], after[:5])
    assert (before[5:] - after[5:]).abs().amin(dim=0).max() > 0


def test_summary_is_the_state_of_the_last_token() -> None:
    net, batch = built().trunk, collate_unpadded(random_rows([5, 3], VOCAB))
    assert torch.equal(net.summary(batch), net(batch)[[4, 7]])


def test_all_layers_share_the_same_two_biases() -> None:
    names = [name for name, _ in built().named_parameters() if "biases" in name]
    assert names == [f"trunk.blocks.0.attention.biases.{name}" for name in ("content", "distance")]


@pytest.mark.parametrize(
    ("keys", "vocab_size", "count"),
    [
        pytest.param(
            {"num_hidden_layers": 12, "hidden_size": 512, "num_attention_heads": 8}, 204, 41_055_436, id="enwik8-12"
        ),
        pytest.param(
            {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 8, "intermediate_size": 3072},
            204,
            277_231_820,
            id="enwik8-24",
        ),
    ],
)
def test_model_has_the_published_number_of_weights(keys: dict[str, int], vocab_size: int, count: int) -> None:
    with torch.device("meta"):
        assert Model(Decoder(**keys, **XL), (NextToken(bias=True),), vocab_size, seed=0).num_parameters == count


def test_pre_norm_with_relative_positions_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"invalid model\.norm_position: got 'pre', expected post with relative positions"
    ):
        replace(TRUNK, norm_position="pre")


@pytest.mark.parametrize("keys", [{"same_length": True, "mem_len": 0}, {"eval_clamp_len": 4}])
def test_a_value_that_relative_positions_cannot_have_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"model\.position_embedding.{next(iter(keys))}: got"):
        relative_to(**keys)


@pytest.mark.parametrize(
    "keys",
    [{"attention_window": AlternatingWindow(size=4)}, {"max_position_embeddings": 16}, {"init_method": "normal"}],
)
def test_unknown_keys_of_relative_positions_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{next(iter(keys))}'"):
        RelativePositions(**keys)


@pytest.mark.parametrize("keys", [{"mem_len": 4}, {"clamp_len": 4}, {"same_length": True}, {"eval_mem_len": 4}])
def test_unknown_keys_of_learned_positions_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{next(iter(keys))}'"):
        LearnedPositions(max_position_embeddings=16, **keys)


def test_adaptive_embeddings_with_learned_positions_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"invalid model\.token_embedding\.kind: got 'adaptive', expected plain with learned pos"
    ):
        Decoder(
            num_hidden_layers=2, hidden_size=32, num_attention_heads=4, token_embedding=AdaptiveEmbedding(cutoffs=(10,))
        )
