"""The trunk: sizes from the papers, equal results for both layouts, attention masks, and weight initialization."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.batches import collate_padded, collate_unpadded, random_rows
from training.architectures.attention import attend
from training.architectures.layout import BatchLayout, layout
from training.losses import Loss, MaskedTokens, NextToken, SentencePair
from training.model import Model, parameter_groups
from training.specs import Architecture, Decoder, Encoder, LearnedPositions

STILL: dict[str, Any] = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.2}
ENCODER = Encoder(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    **STILL,
)
DECODER = Decoder(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    **STILL,
)
TRUNKS = [
    pytest.param(ENCODER, id="post-norm encoder"),
    pytest.param(replace(ENCODER, norm_position="pre"), id="pre-norm encoder"),
    pytest.param(DECODER, id="pre-norm decoder"),
    pytest.param(replace(DECODER, norm_position="post"), id="post-norm decoder"),
]
BERT = (MaskedTokens(), SentencePair())
ROBERTA = Encoder(
    num_hidden_layers=12,
    hidden_size=768,
    num_attention_heads=12,
    norm_eps=1e-5,
    position_embedding=LearnedPositions(max_position_embeddings=514, offset=2),
    type_vocab_size=1,
)
VOCAB = 50
RAGGED = [5, 8, 1, 3]


def bert(layers: int, width: int, heads: int) -> Encoder:
    return Encoder(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads)


def gpt(layers: int, width: int, heads: int, max_positions: int = 1024) -> Decoder:
    return Decoder(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        position_embedding=LearnedPositions(max_position_embeddings=max_positions),
    )


def built(trunk: Architecture, losses: Sequence[Loss], vocab_size: int = VOCAB, seed: int = 0) -> Model:
    return Model(trunk, tuple(losses), vocab_size, seed)


def heads_of(trunk: Architecture) -> tuple[Loss, ...]:
    return (NextToken(),) if isinstance(trunk, Decoder) else BERT


def by_token(hidden_BSD: Tensor, lengths: Sequence[int]) -> Tensor:
    """The states of the real tokens, sequence by sequence."""
    return torch.cat([row[:length] for row, length in zip(hidden_BSD, lengths, strict=True)])


# Published sizes, reference/family.md B2.1, B2.4, B4.2, B4.3 and D4.


@pytest.mark.parametrize(
    ("trunk", "losses", "vocab_size", "count"),
    [
        pytest.param(bert(12, 768, 12), BERT, 30_522, 110_106_428, id="bert-base-uncased"),
        pytest.param(bert(12, 768, 12), BERT, 28_996, 108_932_934, id="bert-base-cased"),
        pytest.param(bert(12, 768, 12), BERT, 21_128, 102_882_442, id="bert-base-chinese"),
        pytest.param(bert(24, 1024, 16), BERT, 30_522, 336_226_108, id="bert-large-uncased"),
        pytest.param(bert(2, 128, 2), BERT, 30_522, 4_433_468, id="bert-tiny"),
        pytest.param(bert(4, 256, 4), BERT, 30_522, 11_267_900, id="bert-mini"),
        pytest.param(bert(4, 512, 8), BERT, 30_522, 29_058_876, id="bert-small"),
        pytest.param(bert(8, 512, 8), BERT, 30_522, 41_668_412, id="bert-medium"),
        pytest.param(bert(12, 768, 12), [MaskedTokens()], 30_522, 109_514_298, id="bert-base-masked-tokens-only"),
        pytest.param(ROBERTA, [MaskedTokens()], 50_265, 124_697_433, id="roberta-base"),
        pytest.param(
            replace(ROBERTA, num_hidden_layers=24, hidden_size=1024, num_attention_heads=16),
            [MaskedTokens()],
            50_265,
            355_412_057,
            id="roberta-large",
        ),
        pytest.param(gpt(12, 768, 12), [NextToken()], 50_257, 124_439_808, id="gpt2-small"),
        pytest.param(gpt(24, 1024, 16), [NextToken()], 50_257, 354_823_168, id="gpt2-medium"),
        pytest.param(gpt(36, 1280, 20), [NextToken()], 50_257, 774_030_080, id="gpt2-large"),
        pytest.param(gpt(48, 1600, 25), [NextToken()], 50_257, 1_557_611_200, id="gpt2-xl"),
        pytest.param(gpt(96, 12_288, 96, 2048), [NextToken()], 50_257, 174_604_259_328, id="gpt3-175b"),
    ],
)
def test_model_has_the_published_number_of_weights(
    trunk: Architecture, losses: Sequence[Loss], vocab_size: int, count: int
) -> None:
    with torch.device("meta"):
        assert built(trunk, losses, vocab_size).num_parameters == count


def test_bert_base_with_pooler_and_without_heads_has_109_482_240_weights() -> None:
    with torch.device("meta"):
        model = built(bert(12, 768, 12), [SentencePair()], 30_522)
    heads_only = sum(parameter.numel() for parameter in model.heads["pair_label"].classify.parameters())
    assert model.num_parameters - heads_only == 109_482_240


# Layouts.


@pytest.mark.parametrize("trunk", TRUNKS)
def test_unpadded_states_equal_padded_states(trunk: Architecture) -> None:
    rows, model = random_rows(RAGGED, VOCAB), built(trunk, heads_of(trunk))
    flat_TD, rectangle_BSD = model.trunk(collate_unpadded(rows)), model.trunk(collate_padded(rows, 10))
    assert rectangle_BSD.shape == (4, 10, 32)
    torch.testing.assert_close(flat_TD, by_token(rectangle_BSD, RAGGED), rtol=0, atol=1e-6)


@pytest.mark.parametrize("trunk", TRUNKS)
def test_unpadded_gradients_equal_padded_gradients(trunk: Architecture) -> None:
    rows, gradients = random_rows(RAGGED, VOCAB), []
    for batch in (collate_unpadded(rows), collate_padded(rows, 10)):
        model = built(trunk, heads_of(trunk))
        sum(score.loss / score.count for score in model(batch).values()).backward()
        gradients.append({name: tensor.grad for name, tensor in model.named_parameters()})
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


def test_sequences_of_equal_length_are_not_rearranged() -> None:
    batch = collate_unpadded(random_rows([6, 6, 6], VOCAB))
    rows = layout(batch, "bidirectional")
    assert rows.place_T is None
    assert rows.seen is None


def test_sequences_of_equal_length_have_the_same_states_as_alone() -> None:
    rows, trunk = random_rows([6, 6, 6], VOCAB), built(ENCODER, BERT).trunk
    alone = torch.cat([trunk(collate_unpadded([row])) for row in rows])
    torch.testing.assert_close(trunk(collate_unpadded(rows)), alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("trunk", TRUNKS)
def test_sequences_of_a_batch_do_not_attend_to_each_other(trunk: Architecture) -> None:
    rows, others = random_rows(RAGGED, VOCAB), random_rows(RAGGED, VOCAB, seed=1)
    net = built(trunk, heads_of(trunk)).trunk
    mixed = net(collate_unpadded([rows[0], *others[1:]]))
    torch.testing.assert_close(net(collate_unpadded(rows))[: RAGGED[0]], mixed[: RAGGED[0]], rtol=0, atol=1e-6)


# Attention masks.


def batch_of(lengths: Sequence[int], device: str = "cpu") -> dict[str, Tensor]:
    """An unpadded batch of these lengths, with only the columns that a layout reads."""
    return {"input_ids": torch.zeros(sum(lengths), device=device), "lengths": torch.tensor(lengths)}


def dense_attention(qkv_3BSHK: Tensor, seen_BSS: Tensor) -> Tensor:
    """The oracle: softmax of all scores, with masked ones at minus infinity."""
    query, key, value = qkv_3BSHK
    score_BHSS = torch.einsum("bqhk,bshk->bhqs", query, key) / math.sqrt(query.shape[-1])
    weight_BHSS = score_BHSS.masked_fill(~seen_BSS[:, None], -torch.inf).softmax(-1)
    return torch.einsum("bhqs,bshk->bqhk", weight_BHSS, value)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [RAGGED, [6, 6, 6]])
def test_attention_equals_a_dense_mask(lengths: list[int], causal: bool) -> None:
    longest = max(lengths)
    qkv_3BSHK = torch.randn(3, len(lengths), longest, 4, 8, generator=torch.Generator().manual_seed(0))
    inside_BS = torch.arange(longest) < torch.tensor(lengths)[:, None]
    seen_BSS = inside_BS[:, None, :].expand(-1, longest, -1)
    wanted = dense_attention(qkv_3BSHK, seen_BSS.tril() if causal else seen_BSS)[inside_BS]
    rows = layout(batch_of(lengths), "causal" if causal else "bidirectional")
    query, key, value = (heads_BSHK[inside_BS] for heads_BSHK in qkv_3BSHK)
    found = attend(query, torch.cat([key, value], -2), rows, rows)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("trunk", TRUNKS[2:])
def test_decoder_does_not_attend_to_the_future(trunk: Decoder) -> None:
    batch, net = collate_unpadded(random_rows([10], VOCAB)), built(trunk, [NextToken()]).trunk
    changed = batch | {
        "input_ids": torch.where(torch.arange(10) < 6, batch["input_ids"], (batch["input_ids"] + 1) % VOCAB)
    }
    before, after = net(batch), net(changed)
    torch.testing.assert_close(before[:6], after[:6], rtol=0, atol=1e-6)
    assert (before[6:] - after[6:]).abs().amax(-1).min() > 0.01


def test_encoder_attends_to_both_sides() -> None:
    batch, net = collate_unpadded(random_rows([10], VOCAB)), built(ENCODER, BERT).trunk
    changed = batch | {
        "input_ids": torch.where(torch.arange(10) == 6, (batch["input_ids"] + 1) % VOCAB, batch["input_ids"])
    }
    assert (net(batch) - net(changed)).abs().amax(-1).min() > 1e-4


@pytest.mark.parametrize(("trunk", "at"), [(ENCODER, [0, 5, 13, 14]), (DECODER, [4, 12, 13, 16])])
def test_the_summary_is_the_first_state_of_an_encoder_and_the_last_of_a_decoder(
    trunk: Architecture, at: list[int]
) -> None:
    rows, net = random_rows(RAGGED, VOCAB), built(trunk, heads_of(trunk)).trunk
    flat_BD, rectangle_BD = net.summary(collate_unpadded(rows)), net.summary(collate_padded(rows, 10))
    assert torch.equal(flat_BD, net(collate_unpadded(rows))[at])
    torch.testing.assert_close(flat_BD, rectangle_BD, rtol=0, atol=1e-6)


def test_encoder_ignores_the_content_of_padding() -> None:
    rows, net = random_rows(RAGGED, VOCAB), built(ENCODER, BERT).trunk
    zeros, nines = net(collate_padded(rows, 10, pad=0)), net(collate_padded(rows, 10, pad=9))
    torch.testing.assert_close(by_token(zeros, RAGGED), by_token(nines, RAGGED), rtol=0, atol=0)


def test_first_position_uses_the_table_row_after_the_offset() -> None:
    rows = random_rows(RAGGED, VOCAB)
    shifted = built(replace(ENCODER, position_embedding=LearnedPositions(max_position_embeddings=16, offset=2)), BERT)
    plain = built(replace(ENCODER, position_embedding=LearnedPositions(max_position_embeddings=14)), BERT)
    state = shifted.state_dict()
    plain.load_state_dict(state | {"trunk.positions.weight": state["trunk.positions.weight"][2:]})
    torch.testing.assert_close(
        shifted.trunk(collate_unpadded(rows)), plain.trunk(collate_unpadded(rows)), rtol=0, atol=0
    )


def test_a_trunk_with_one_segment_treats_a_pair_as_one_segment() -> None:
    """RoBERTa fine-tuned on pairs: the second segment has no embedding of its own."""
    rows, net = random_rows(RAGGED, VOCAB), built(replace(ENCODER, type_vocab_size=1), (MaskedTokens(),)).trunk
    alike = [row | {"token_type_ids": row["token_type_ids"] * 0} for row in rows]
    torch.testing.assert_close(net(collate_unpadded(rows)), net(collate_unpadded(alike)), rtol=0, atol=0)


def test_dropout_acts_in_training_and_not_in_evaluation() -> None:
    batch, net = collate_unpadded(random_rows(RAGGED, VOCAB)), built(replace(ENCODER, hidden_dropout=0.1), BERT).trunk
    assert not torch.equal(net(batch), net(batch))
    net.eval()
    assert torch.equal(net(batch), net(batch))


def test_dropout_also_acts_on_the_embeddings() -> None:
    batch, net = collate_unpadded(random_rows(RAGGED, VOCAB)), built(replace(ENCODER, hidden_dropout=0.5), BERT).trunk
    net.blocks = torch.nn.ModuleList()
    assert 0.3 < float((net(batch) == 0).float().mean()) < 0.7


def test_attention_dropout_acts_in_training_and_not_in_evaluation() -> None:
    batch, net = (
        collate_unpadded(random_rows(RAGGED, VOCAB)),
        built(replace(DECODER, attention_dropout=0.1), [NextToken()]).trunk,
    )
    assert not torch.equal(net(batch), net(batch))
    net.eval()
    assert torch.equal(net(batch), net(batch))


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
def test_variable_length_kernel_equals_padded_attention(causal: bool) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    qkv_T3HK = torch.randn(sum(RAGGED), 3, 4, 64, device="cuda", generator=generator)
    rows: BatchLayout = layout(batch_of(RAGGED, "cuda"), "causal" if causal else "bidirectional")
    query, key_value = qkv_T3HK[:, 0], qkv_T3HK[:, 1:].flatten(1, 2)
    found = attend(query.bfloat16(), key_value.bfloat16(), rows, rows).float()
    torch.testing.assert_close(found, attend(query, key_value, rows, rows), rtol=0, atol=0.02)


# Weight initialization and weight decay.


def tensors_of(model: torch.nn.Module) -> Mapping[str, Tensor]:
    return {name: tensor.detach() for name, tensor in model.named_parameters()}


@pytest.mark.parametrize(
    "trunk",
    [
        pytest.param(bert(4, 256, 4), id="bert"),
        pytest.param(replace(bert(4, 256, 4), norm_position="pre"), id="megatron-bert"),
        pytest.param(gpt(4, 256, 4), id="gpt-2"),
        pytest.param(replace(gpt(4, 256, 4), norm_position="post"), id="gpt-1"),
    ],
)
def test_matrices_are_initialized_normal_biases_zero_and_gains_one(trunk: Architecture) -> None:
    for name, tensor in tensors_of(built(trunk, heads_of(trunk), vocab_size=500)).items():
        if name.endswith("norm.weight"):
            assert torch.all(tensor == 1), name
        elif tensor.ndim == 1:
            assert torch.all(tensor == 0), name
        else:
            residual = trunk.norm_position == "pre" and name.endswith(
                ("attention.out.weight", "feed_forward.down.weight")
            )
            std = 0.02 / math.sqrt(8) if residual else 0.02
            assert float(tensor.mean()) == pytest.approx(0, abs=4 * std / math.sqrt(tensor.numel())), name
            assert float(tensor.std()) == pytest.approx(std, rel=4 / math.sqrt(2 * tensor.numel())), name


def test_a_truncated_normal_is_cut_at_two_deviations() -> None:
    for name, tensor in tensors_of(
        built(replace(bert(2, 256, 4), init_method="truncated_normal"), BERT, vocab_size=500)
    ).items():
        if tensor.ndim > 1:
            assert 0.0395 < float(tensor.abs().max()) <= 0.04, name
            assert float(tensor.std()) == pytest.approx(0.02 * 0.8796, rel=4 / math.sqrt(2 * tensor.numel())), name


def test_sinusoidal_positions_have_unit_scale_and_similar_neighbors() -> None:
    table_PD = built(
        replace(
            bert(2, 64, 2), position_embedding=LearnedPositions(max_position_embeddings=512, init_method="sinusoidal")
        ),
        BERT,
    ).trunk.positions.weight.detach()
    assert float(table_PD.square().mean().sqrt()) == pytest.approx(0.02, rel=1e-3)
    near, far = (torch.cosine_similarity(table_PD[20], table_PD[at], dim=0) for at in (21, 60))
    assert near > 0.9 > 0.7 > far


@pytest.mark.parametrize("make", [bert, gpt])
def test_positions_may_have_their_own_initial_deviation(make: Callable[..., Architecture]) -> None:
    trunk = make(2, 64, 2)
    changed = replace(trunk, position_embedding=replace(trunk.position_embedding, init_std=0.01))
    plain, own = (tensors_of(built(each, heads_of(each))) for each in (trunk, changed))
    different = [name for name in plain if not torch.equal(plain[name], own[name])]
    assert different == ["trunk.positions.weight"]
    torch.testing.assert_close(own[different[0]], plain[different[0]] / 2)


@pytest.mark.parametrize("init", ["normal", "truncated_normal", "pytorch_default", "xavier"])
def test_the_deviation_of_positions_overrides_every_init_method(init: Any) -> None:
    trunk = replace(
        bert(2, 64, 2),
        position_embedding=LearnedPositions(max_position_embeddings=512, init_std=0.01),
        init_method=init,
    )
    share = 0.88 if init == "truncated_normal" else 1.0
    assert float(built(trunk, BERT).trunk.positions.weight.detach().std()) == pytest.approx(share * 0.01, rel=0.05)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"init_std": -1.0}, "got -1.0, expected a pos"),
        ({"init_method": "sinusoidal", "init_std": 0.01}, "0 with init_method sinusoidal"),
    ],
)
def test_invalid_deviations_of_positions_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LearnedPositions(max_position_embeddings=512, **keys)


def test_equal_seeds_give_equal_weights_and_other_seeds_others() -> None:
    first, again, other = (built(ENCODER, BERT, seed=seed).trunk.tokens.weight for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_no_two_matrices_are_initialized_equally() -> None:
    matrices = [tensor for tensor in tensors_of(built(ENCODER, BERT)).values() if tensor.ndim == 2]
    assert len({float(tensor[0, 0]) for tensor in matrices}) == len(matrices) == 14


def test_an_additional_head_does_not_change_the_other_weights() -> None:
    alone = tensors_of(built(ENCODER, [MaskedTokens()]))
    both = tensors_of(built(ENCODER, BERT))
    assert all(torch.equal(tensor, both[name]) for name, tensor in alone.items())


def test_building_a_model_does_not_change_the_global_generator() -> None:
    before = torch.get_rng_state()
    built(ENCODER, BERT)
    assert torch.equal(torch.get_rng_state(), before)


def test_only_matrices_and_embeddings_decay() -> None:
    model = built(ENCODER, BERT)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, constant = parameter_groups(model, 0.01)
    assert (decaying["weight_decay"], constant["weight_decay"]) == (0.01, 0.0)
    assert {names[id(parameter)].rpartition(".")[2] for parameter in decaying["params"]} == {"weight"}
    assert all("norm" in names[id(p)] or names[id(p)].endswith("bias") for p in constant["params"])
    assert len(decaying["params"]) + len(constant["params"]) == len(names)
