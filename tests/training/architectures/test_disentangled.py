"""DeBERTa compared with transformers; its options, dropout, recomputation and slices; its shared tables."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from orchestration.planning import ParallelLayout
from orchestration.planning.memory import count_kept_by_block
from tests.training import parity
from tests.training.architectures.test_generator_discriminator import LOSSES, parts, rows, scores_and_input, twin
from tests.training.batches import collate_padded, collate_unpadded, random_rows
from tests.training.meta import Measured, measure
from training.architectures import cut_net, set_recompute
from training.architectures.disentangled import DisentangledAttention
from training.architectures.layout import layout
from training.architectures.tensor_parallel import Share
from training.formats import half
from training.formats.deberta_v2 import DEBERTA_V2
from training.losses import MaskedTokens, ReplacedTokenDetection
from training.losses.heads.replaced_token_detection import original_ids, select_positions
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import (
    BatchWork,
    DisentangledAttentionSpec,
    DisentangledPositions,
    Encoder,
    GeneratorDiscriminator,
    SlidingWindow,
)

VOCAB = 70
RAGGED = [5, 40, 1, 17]  # 40 tokens are more than the largest distance with a bucket of its own
POSITIONS = DisentangledPositions(position_buckets=8, max_relative_positions=16)
SIZES: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "type_vocab_size": 0,
    "norm_eps": 1e-7,
    "position_embedding": POSITIONS,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "init_std": 0.2,
}
ENCODER = Encoder(**SIZES)
TWIN = GeneratorDiscriminator(
    **SIZES, generator_size_ratio=1.0, generator_num_hidden_layers=2, weight_sharing="disentangled"
)


def built(trunk: Encoder = ENCODER) -> Model:
    return parity.built(ModelSpec(model=trunk, losses=(MaskedTokens(),), vocab_size=VOCAB))


def oracle(model: Model) -> Any:
    """DebertaV2ForMaskedLM with the weights of a model."""
    config = DEBERTA_V2.config(model.spec, vocab=None) | {"vocab_size": VOCAB, "pad_token_id": None}  # type: ignore[arg-type]
    theirs = parity.hf().DebertaV2ForMaskedLM(parity.hf().DebertaV2Config(**config))
    unused = theirs.load_state_dict(DEBERTA_V2.theirs(model.state_dict(), model.spec), strict=False)
    assert not unused.unexpected_keys
    assert set(unused.missing_keys) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}  # tied
    return theirs.eval()


# transformers


@pytest.mark.parametrize("keys", [{}, {"type_vocab_size": 2}, {"position_embedding": DisentangledPositions()}], ids=str)
def test_states_logits_loss_and_gradients_equal_those_of_transformers(keys: dict[str, Any]) -> None:
    model = built(replace(ENCODER, **keys))
    theirs, drawn = oracle(model), random_rows(RAGGED, VOCAB)
    batch, padded = collate_unpadded(drawn), collate_padded(drawn, 44)
    inside_BS = parity.inside(padded)
    wanted = theirs(
        input_ids=padded["input_ids"],
        attention_mask=inside_BS.long(),
        token_type_ids=padded["token_type_ids"],
        labels=parity.labels_of(padded),
        output_hidden_states=True,
    )
    states = model.trunk.layer_states(batch)
    for found, layer in zip(states, wanted.hidden_states, strict=True):
        torch.testing.assert_close(found, layer[inside_BS], rtol=0, atol=1e-5)
    head = model.heads["masked_tokens"]
    logits_TV = F.linear(head.features(states[-1]), model.trunk.table, head.bias)
    torch.testing.assert_close(logits_TV, wanted.logits[inside_BS], rtol=0, atol=1e-5)
    score = model(batch)["masked_tokens"]
    found = score.loss / score.count
    torch.testing.assert_close(found, wanted.loss, rtol=0, atol=1e-5)
    found.backward()
    wanted.loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    mine = DEBERTA_V2.theirs(gradients, model.spec)
    for name, weight in theirs.named_parameters():
        torch.testing.assert_close(mine[name], weight.grad, rtol=0, atol=1e-5, msg=name)


def test_buckets_equal_those_of_transformers_at_all_distances() -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    model, distance = built(replace(ENCODER, position_embedding=DisentangledPositions())), torch.arange(-1500, 1501)
    wanted = (make_log_bucket_position(distance, 256, 512).long() + 256).clamp(0, 511)
    assert torch.equal(model.trunk.relative.row_at(distance), wanted)


def test_scores_are_those_of_equation_4() -> None:
    """One pair at a time, in float64."""
    generator = torch.Generator().manual_seed(0)
    query_SK, key_SK, to_query_PK, to_key_PK = (
        torch.randn(rows, 8, generator=generator, dtype=torch.float64) for rows in (21, 21, 16, 16)
    )
    attention = built().double().trunk.blocks[0].attention
    relative = built().trunk.relative
    at = torch.arange(-20, 22)
    row_2R = torch.stack([relative.row_at(-at), relative.row_at(at)])
    heads_P3HK = torch.stack([to_query_PK, to_key_PK, torch.zeros(16, 8, dtype=torch.float64)], 1)
    found_SS = attention._score_positions(query_SK[None, :, None], key_SK[None, :, None], heads_P3HK, row_2R)[0, 0]
    for query in range(21):
        for key in range(21):
            row = int(relative.row_at(torch.tensor([query - key])))
            score = query_SK[query] @ to_key_PK[row] + key_SK[key] @ to_query_PK[row]
            torch.testing.assert_close(found_SS[query, key], score / math.sqrt(3 * 8))


# Batches, dropout, recomputation and slices


def test_padding_and_other_sequences_of_a_batch_change_no_state() -> None:
    model, drawn = built(), random_rows(RAGGED, VOCAB)
    with torch.no_grad():
        alone = torch.cat([model.trunk(collate_unpadded([row])) for row in drawn])
        together, padded = model.trunk(collate_unpadded(drawn)), collate_padded(drawn, 64)
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
        torch.testing.assert_close(model.trunk(padded)[parity.inside(padded)], alone, rtol=0, atol=1e-5)


def test_the_order_of_the_tokens_matters_only_by_their_distances() -> None:
    """With equal rows for all distances, a model reads a set of tokens."""
    model, batch = built(), collate_unpadded(random_rows([12], VOCAB))
    turned = batch | {"input_ids": batch["input_ids"].flip(0)}
    with torch.no_grad():
        assert not torch.allclose(model.trunk(batch).flip(0), model.trunk(turned), atol=1e-2)
        model.trunk.relative.rel_embeddings.weight.copy_(torch.randn(32).expand(16, 32))
        torch.testing.assert_close(model.trunk(batch).flip(0), model.trunk(turned), rtol=0, atol=1e-5)


def test_each_layer_drops_other_elements_of_the_distances() -> None:
    model, batch = built(replace(ENCODER, hidden_dropout=0.4)).train(), collate_unpadded(random_rows([9], VOCAB))
    read = list[Tensor]()
    for block in model.trunk.blocks:
        block.attention.rel_dropout.register_forward_hook(lambda module, given, states: read.append(states))
    model.trunk(batch)
    assert len(read) == 3
    assert not torch.equal(read[0] == 0, read[1] == 0)
    assert 0.3 < float((read[0] == 0).float().mean()) < 0.5


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_recomputation_changes_no_gradient(mode: Any) -> None:
    found = []
    for parts_ in ("none", mode):
        model = built(replace(ENCODER, hidden_dropout=0.2, attention_dropout=0.2)).train()
        set_recompute(model, parts_)
        torch.manual_seed(5)
        model(collate_unpadded(random_rows(RAGGED, VOCAB)))["masked_tokens"].loss.backward()
        found.append({name: weight.grad for name, weight in model.named_parameters()})
    assert all(torch.equal(gradient, found[0][name]) for name, gradient in found[1].items())


def test_workers_have_the_scores_of_their_heads() -> None:
    """The sum of the outputs of two workers, without the bias that each adds, is that of the whole attention."""
    spec = ENCODER.attention_layer
    assert isinstance(spec, DisentangledAttentionSpec)
    model, batch = built(), collate_unpadded(random_rows(RAGGED, VOCAB))
    rows_ = model.trunk.relative.add_to(layout(batch, "bidirectional"), torch.device("cpu"))
    whole, x_TD = model.trunk.blocks[0].attention, torch.randn(len(batch["input_ids"]), 32)
    found = torch.zeros_like(x_TD)
    for number in range(2):
        mine = torch.nn.ModuleDict({"attention": DisentangledAttention(spec)})
        cuts = cut_net(mine, Share(number, 2))
        for name, weight in mine.named_parameters():
            value = whole.get_parameter(name.removeprefix("attention."))
            weight.data.copy_(cuts[name].of(value) if name in cuts else value)
        mine["attention"].out.share = mine["attention"].qkv.share = _Alone(number, 2)
        found += mine["attention"](x_TD, rows_) - whole.out.bias
    torch.testing.assert_close(found + whole.out.bias, whole(x_TD, rows_), rtol=0, atol=1e-5)


class _Alone(Share):
    """A share without communication."""

    def enter(self, x: Tensor) -> Tensor:
        return x

    def leave(self, x: Tensor) -> Tensor:
        return x


def test_a_model_learns_to_copy_a_token_at_a_distance() -> None:
    """Each masked token is the one three tokens before it, which only relative positions can find.

    Without positions, the loss would not fall below ln 10 = 2.3; here it is 0.045 after 80 updates.
    """
    generator = torch.Generator().manual_seed(0)
    model = Model(replace(ENCODER, num_hidden_layers=2), (MaskedTokens(),), VOCAB, seed=0)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=5e-3), list[float]()
    for _ in range(80):
        ids_BS = torch.randint(5, 15, (16, 20), generator=generator)
        at_B = torch.randint(3, 20, (16,), generator=generator)
        row_B = torch.arange(16)
        target_B = ids_BS[row_B, at_B - 3]
        ids_BS[row_B, at_B] = 4
        batch = {
            "input_ids": ids_BS,
            "lengths": torch.full((16,), 20),
            "targets_at": row_B * 20 + at_B,
            "targets": target_B,
        }
        score = model(batch)["masked_tokens"]
        (score.loss / score.count).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(score.loss.item() / score.count)
    assert losses[0] > 2
    assert sum(losses[-10:]) / 10 < 0.3


def test_a_plan_has_the_work_and_the_stored_bytes_of_a_layer() -> None:
    """Without dropout. The projections of the table of distances are work per batch, which plans leave out."""
    sizes = {"hidden_size": 128, "position_embedding": DisentangledPositions(position_buckets=32)}
    few, many = (replace(ENCODER, **sizes, num_hidden_layers=layers) for layers in (1, 2))
    batch, found = collate_unpadded(random_rows([48] * 3, VOCAB)), list[Measured]()
    for trunk in (few, many):
        with torch.device("meta"):
            model = Model(trunk, (MaskedTokens(),), VOCAB, seed=0)
        found.append(measure(model, batch, with_heads=False))
    layer, work = found[1].minus(found[0]), BatchWork(tokens=144, squares=3 * 48**2, targets=0)
    per_batch = 64 * 128 * 3 * 128
    linear = replace(work, squares=0)
    assert layer.flops == 6 * (many.products(linear) - few.products(linear) + per_batch)
    assert (
        many.products(work) - few.products(work) - many.products(linear) + few.products(linear) == 4 * 128 * 3 * 48**2
    )
    (block,) = few.blocks(work)
    statistics = 2 * 8 * 144
    assert layer.bytes == count_kept_by_block(block, ParallelLayout(precision="fp32"), cuda=True) + statistics


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_key_value_heads": 2}, r"invalid model.num_key_value_heads: got 2, expected 0 or num_attention_heads"),
        ({"qk_norm": True}, r"invalid model.qk_norm: got True, expected false with"),
        ({"attention_mask": "causal"}, r"invalid model.attention_mask: got 'causal', expected bidirectional with"),
        ({"attention_window": SlidingWindow(size=4)}, r"invalid model.attention_window.kind: got 'sliding', expected"),
    ],
)
def test_other_kinds_of_attention_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ENCODER, **keys)


@pytest.mark.parametrize(("buckets", "farthest"), [(7, 16), (0, 16), (8, 5)])
def test_tables_without_logarithmic_buckets_are_refused(buckets: int, farthest: int) -> None:
    with pytest.raises(ValueError, match=r"invalid model.position_embedding.(position_buckets|max_relative_positions)"):
        DisentangledPositions(position_buckets=buckets, max_relative_positions=farthest)


@pytest.mark.parametrize("trunk", [ENCODER, TWIN], ids=["encoder", "generator_discriminator"])
def test_sequences_and_stages_are_not_divided(trunk: Any) -> None:
    assert "disentangled, which does not support sequence parallelism" in trunk.chunks_over(2)
    assert trunk.stages_over(2)
    assert not trunk.split_over(2)


# Gradient-disentangled sharing (DeBERTaV3, 3.3)


def sharing() -> Model:
    return twin(TWIN)


def test_the_discriminator_starts_with_the_tables_of_the_generator() -> None:
    model = Model(TWIN, LOSSES, VOCAB, seed=0)
    differences = parts(model, "trunk.difference.")
    assert set(differences) == {
        f"trunk.difference.{name}" for name in ("tokens.weight", "embedding_norm.weight", "embedding_norm.bias")
    }
    assert not differences["trunk.difference.tokens.weight"].any()
    batch = collate_unpadded(rows())
    torch.testing.assert_close(model.trunk.embed_for_discriminator(batch), model.trunk.embed(batch))


def test_each_loss_changes_only_the_tables_of_its_model() -> None:
    model = sharing()
    scores, _ = scores_and_input(model, collate_unpadded(rows()))
    scores["replaced_token_detection"].loss.backward()
    assert model.trunk.tokens.weight.grad is None
    assert model.trunk.embedding_norm.weight.grad is None
    assert all(weight.grad is not None for weight in parts(model, "trunk.difference.").values())
    model.zero_grad()
    scores, _ = scores_and_input(model, collate_unpadded(rows()))
    scores["masked_tokens"].loss.backward()
    assert model.trunk.tokens.weight.grad.any()
    assert all(weight.grad is None for weight in parts(model, "trunk.difference.").values())


def test_each_model_has_its_own_table_of_distances_and_number_of_layers() -> None:
    model = sharing()
    assert len(model.trunk.generator.blocks) == 2
    assert len(model.trunk.discriminator.blocks) == 3
    ours = {id(weight) for weight in parts(model, "trunk.discriminator.").values()}
    assert id(model.trunk.discriminator.relative.rel_embeddings.weight) in ours
    assert not ours & {id(weight) for weight in parts(model, "trunk.generator.").values()}


@pytest.mark.parametrize("which", ["generator", "discriminator"])
def test_each_model_alone_has_the_same_states(which: Any) -> None:
    model, batch = sharing(), collate_unpadded(rows())
    state, spec = half(model.state_dict(), model.spec, which)
    alone = Model(spec.model, spec.losses, VOCAB, seed=1).eval()
    alone.load_state_dict(state)
    stack, embed = getattr(model.trunk, which), model.trunk.embed
    x = (embed if which == "generator" else model.trunk.embed_for_discriminator)(batch)
    torch.testing.assert_close(alone.trunk(batch), stack(x, layout(batch, "bidirectional")), rtol=0, atol=1e-5)


def test_the_head_of_deberta_adds_the_state_of_the_first_token() -> None:
    losses = (MaskedTokens(), ReplacedTokenDetection(add_first_state=True))
    model = parity.built(ModelSpec(model=TWIN, losses=losses, vocab_size=VOCAB))
    head, drawn = model.heads["replaced"], rows()
    found = list[Tensor]()
    for batch in (collate_unpadded(drawn), collate_padded(drawn, 14)):
        scores, read = scores_and_input(model, batch)
        hidden = model.trunk.discriminator(model.trunk.embed_for_discriminator(read), layout(read, "bidirectional"))
        by_row = hidden.split(batch["lengths"].tolist()) if hidden.ndim == 2 else hidden
        read_TD = torch.cat([x[:length] + x[0] for x, length in zip(by_row, batch["lengths"], strict=True)])
        logit_T, at_T = head.logits(head.norm(read_TD)), select_positions(read, "all")
        replaced_T = (read["input_ids"].flatten() != original_ids(batch))[at_T].float()
        wanted = F.binary_cross_entropy_with_logits(logit_T, replaced_T, reduction="sum")
        torch.testing.assert_close(scores["replaced_token_detection"].loss, wanted)
        found.append(wanted)
    torch.testing.assert_close(found[0], found[1])
    with pytest.raises(ValueError, match=r"invalid losses.add_first_state: got True, expected false with predict"):
        ReplacedTokenDetection(add_first_state=True, predict="original")


def test_a_discriminator_of_original_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected predict replaced with model.weight_sharing disentangled"):
        ModelSpec(model=TWIN, losses=(MaskedTokens(), ReplacedTokenDetection(predict="original")), vocab_size=VOCAB)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"sample_from": "uniform"}, "sample_from"),
        ({"weight_sharing": "all"}, "weight_sharing"),
        ({"generator_num_hidden_layers": -1}, "generator_num_hidden_layers"),
    ],
)
def test_other_generators_are_refused(keys: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=f"invalid model.{key}: got "):
        replace(TWIN, **keys)
