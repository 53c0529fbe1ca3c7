"""Decoders compared with transformers, published sizes up to 530 billion weights, and banded attention."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from preprocessing import tokenization
from tests.training.batches import collate_padded, collate_unpadded, random_rows
from tests.training.parity import built, gradients, hf, inside, labels_of, loaded, randomized, vocabulary, weights
from training.formats import to_transformers
from training.formats.gpt1 import GPT1 as GPT1_FORMAT
from training.formats.gpt2 import GPT2 as GPT2_FORMAT
from training.formats.load import from_transformers
from training.formats.opt import OPT as OPT_FORMAT
from training.losses import NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import AlternatingWindow, Decoder, LearnedPositions

TABLE = 320  # rows of the embedding table, more than the tokenizer here has tokens
RAGGED = [5, 12, 1, 7]
GPT2 = Decoder(
    num_hidden_layers=3,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    hidden_dropout=0.0,
    attention_dropout=0.0,
    init_std=0.2,
)
GPT1 = replace(GPT2, norm_position="post")
OPT = replace(
    GPT2, activation="relu", position_embedding=LearnedPositions(max_position_embeddings=18, offset=2), init_std=0.1
)
TRUNKS = {
    "gpt-1": GPT1,
    "gpt-1, relu": replace(GPT1, activation="relu"),
    "gpt-2": GPT2,
    "opt": OPT,
    "opt, other sizes": replace(OPT, intermediate_size=96, activation="gelu_tanh", num_attention_heads=8),
    "gpt-2, other sizes": replace(GPT2, intermediate_size=96, activation="gelu", num_attention_heads=8),
}
FORMATS = {"gpt-1": GPT1_FORMAT, "gpt-2": GPT2_FORMAT, "opt": OPT_FORMAT}


def spec_of(trunk: Decoder) -> ModelSpec:
    return ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=TABLE)


def batches() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Random sequences, unpadded and padded, without labels at their first tokens, because transformers shifts labels
    by one."""
    rows = random_rows(RAGGED, TABLE)
    for row in rows:
        row["labels"][-1] = -100
        del row["next_sentence_label"]
    return collate_unpadded(rows), collate_padded(rows, 14)


def logits_of(model: Model, batch: dict[str, Tensor]) -> Tensor:
    return F.linear(model.trunk(batch), model.trunk.table)


@pytest.fixture(scope="module")
def vocab_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vocabulary(tokenization.ByteLevelBPE(vocab_size=300), tmp_path_factory.mktemp("vocab"))


# GPT-1 and GPT-2 compared with transformers.


@pytest.mark.parametrize("name", TRUNKS)
def test_transformers_computes_our_logits_loss_and_gradients(name: str, vocab_dir: Path, tmp_path: Path) -> None:
    spec = spec_of(TRUNKS[name])
    model = built(spec)
    to_transformers(weights(model), spec, vocab_dir, tmp_path)
    oracle, (ours, theirs) = loaded(tmp_path), batches()
    labels_BS = F.pad(labels_of(theirs), (1, 0), value=-100)[:, :-1]  # their logits at s predict the token of label s
    output = oracle(input_ids=theirs["input_ids"], attention_mask=inside(theirs).long(), labels=labels_BS)
    torch.testing.assert_close(logits_of(model, ours), output.logits[inside(theirs)], rtol=0, atol=1e-5)
    score = model(ours)["next_token"]
    torch.testing.assert_close(score.loss / score.count, output.loss, rtol=1e-6, atol=0)
    (score.loss / score.count).backward()
    output.loss.backward()
    found = FORMATS[name.partition(",")[0]].theirs(gradients(model), spec)
    torch.testing.assert_close(found, gradients(oracle), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", TRUNKS)
def test_exported_weights_are_imported_bit_for_bit(name: str, vocab_dir: Path, tmp_path: Path) -> None:
    spec = spec_of(TRUNKS[name])
    state = weights(built(spec))
    to_transformers(state, spec, vocab_dir, tmp_path)
    found, back = from_transformers(tmp_path)
    inner = 0 if name.startswith("gpt-1") else spec.model.inner_width
    assert found == replace(spec, model=replace(spec.model, intermediate_size=inner))
    assert state.keys() == back.keys()
    assert all(torch.equal(tensor, back[key]) for key, tensor in state.items())


@pytest.mark.parametrize("prefix", ["transformer.", ""], ids=["saved today", "from the hub"])
def test_gpt_1_of_transformers_has_the_same_logits_after_import(prefix: str, tmp_path: Path) -> None:
    config = hf().OpenAIGPTConfig(vocab_size=TABLE, n_positions=16, n_embd=32, n_layer=2, n_head=4)
    config._attn_implementation = "eager"
    oracle = randomized(hf().OpenAIGPTLMHeadModel(config))
    oracle.save_pretrained(tmp_path)
    spec, _ = from_transformers(tmp_path)
    tensors = {name.replace("transformer.", prefix): tensor.detach() for name, tensor in oracle.named_parameters()}
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0).eval()
    model.load_state_dict(GPT1_FORMAT.ours(tensors, spec, model.state_dict()))
    ours, theirs = batches()
    with torch.no_grad():
        wanted = oracle(input_ids=theirs["input_ids"], attention_mask=inside(theirs).long()).logits[inside(theirs)]
        torch.testing.assert_close(logits_of(model, ours), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("prefix", ["model.decoder.", "decoder."], ids=["saved today", "from the hub"])
def test_opt_of_transformers_has_the_same_logits_after_import(prefix: str, tmp_path: Path) -> None:
    config = hf().OPTConfig(
        vocab_size=TABLE, max_position_embeddings=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        ffn_dim=96,
    )  # fmt: skip
    config._attn_implementation = "eager"
    oracle = randomized(hf().OPTForCausalLM(config))
    oracle.save_pretrained(tmp_path)
    spec, _ = from_transformers(tmp_path)
    tensors = {name.replace("model.decoder.", prefix): tensor.detach() for name, tensor in oracle.named_parameters()}
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0).eval()
    model.load_state_dict(OPT_FORMAT.ours(tensors, spec, model.state_dict()))
    ours, theirs = batches()
    with torch.no_grad():
        wanted = oracle(input_ids=theirs["input_ids"], attention_mask=inside(theirs).long()).logits[inside(theirs)]
        torch.testing.assert_close(logits_of(model, ours), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"do_layer_norm_before": False},  # OPT 350M
        {"word_embed_proj_dim": 16},
        {"enable_bias": False},
        {"layer_norm_elementwise_affine": False},
        {"_remove_final_layer_norm": True},
    ],
)
def test_other_models_of_the_class_of_opt_are_refused(change: dict[str, object]) -> None:
    config = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "word_embed_proj_dim": 32}
    assert OPT_FORMAT.read(config).position_embedding.offset == 2
    with pytest.raises(ValueError, match=f"invalid {next(iter(change))}: got "):
        OPT_FORMAT.read(config | change)


# Banded attention (GPT-3) in every second layer.


def banded(tokens: int) -> Decoder:
    return replace(
        GPT2,
        position_embedding=LearnedPositions(max_position_embeddings=16),
        attention_window=AlternatingWindow(size=tokens),
    )


def states_by_a_mask(model: Model, ids_S: Tensor, band: int) -> Tensor:
    """The states of a pre-norm decoder, computed by dense attention with a mask."""
    net, (length,) = model.trunk, ids_S.shape
    back_SS = torch.arange(length)[:, None] - torch.arange(length)
    x_SD = net.tokens(ids_S) + net.positions(torch.arange(length))
    for number, block in enumerate(net.blocks):
        seen_SS = (back_SS >= 0) & ((back_SS < band) | (number % 2 == 0))
        query, key, value = (
            block.attention.qkv(block.attention_norm(x_SD)).unflatten(-1, (3, 4, -1)).permute(1, 2, 0, 3)
        )
        score_HSS = (query @ key.mT / key.shape[-1] ** 0.5).masked_fill(~seen_SS, -torch.inf)
        x_SD = x_SD + block.attention.out((score_HSS.softmax(-1) @ value).transpose(0, 1).flatten(1))
        x_SD = x_SD + block.feed_forward(block.feed_forward_norm(x_SD))
    return net.final_norm(x_SD)


@pytest.mark.parametrize("band", [1, 3, 5, 12, 40])
def test_every_second_layer_attends_as_with_a_dense_band_mask(band: int) -> None:
    model, rows = built(spec_of(banded(band))), random_rows([12, 5, 9], TABLE)
    wanted_TD = torch.cat([states_by_a_mask(model, torch.from_numpy(row["input_ids"]), band) for row in rows])
    for batch in (collate_unpadded(rows), collate_padded(rows, 14)):
        hidden = model.trunk(batch)
        found_TD = hidden if hidden.ndim == 2 else hidden[inside(batch)]
        torch.testing.assert_close(found_TD, wanted_TD, rtol=0, atol=1e-5)


def test_gradients_of_banded_attention_equal_those_of_a_dense_mask() -> None:
    model, rows = built(spec_of(banded(3))), random_rows([12], TABLE)
    weight_SD = torch.randn(12, 32, generator=torch.Generator().manual_seed(1)) / 12
    found = torch.autograd.grad((model.trunk(collate_unpadded(rows)) * weight_SD).sum(), list(model.parameters()))
    wanted_SD = states_by_a_mask(model, torch.from_numpy(rows[0]["input_ids"]), 3)
    wanted = torch.autograd.grad((wanted_SD * weight_SD).sum(), list(model.parameters()))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_band_does_not_change_the_weights() -> None:
    wide, narrow = (dict(built(spec_of(trunk)).named_parameters()) for trunk in (GPT2, banded(3)))
    assert all(torch.equal(wide[name], tensor) for name, tensor in narrow.items())
    assert wide.keys() == narrow.keys()


# Published sizes: reference/family.md B4 and D4.


def closed_form(trunk: Decoder, vocab_size: int) -> int:
    """Number of weights of a pre-norm decoder with tied embeddings."""
    width, heads, inner = trunk.hidden_size, trunk.num_attention_heads * trunk.width_of_head, trunk.inner_width
    attention = 3 * heads * (width + 1) + width * (heads + 1)
    feed_forward = inner * (width + 1) + width * (inner + 1)
    norms, tables = 2 * width, (vocab_size + trunk.position_embedding.max_position_embeddings) * width
    return tables + trunk.num_hidden_layers * (attention + feed_forward + 2 * norms) + norms


def count(trunk: Decoder, vocab_size: int) -> int:
    with torch.device("meta"):
        return Model(trunk, (NextToken(),), vocab_size, seed=0).num_parameters


def gpt(layers: int, width: int, heads: int, max_positions: int, head_width: int = 0) -> Decoder:
    return Decoder(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        position_embedding=LearnedPositions(max_position_embeddings=max_positions),
        head_dim=head_width,
    )


def test_gpt_1_has_the_published_number_of_weights() -> None:
    assert count(replace(gpt(12, 768, 12, 512), norm_position="post"), 40_478) == 116_534_784


@pytest.mark.parametrize(
    ("trunk", "vocab_size", "published"),
    [
        pytest.param(gpt(12, 768, 12, 1024), 50_257, 124_439_808, id="gpt2-small"),
        pytest.param(gpt(24, 1024, 16, 1024), 50_257, 354_823_168, id="gpt2-medium"),
        pytest.param(gpt(36, 1280, 20, 1024), 50_257, 774_030_080, id="gpt2-large"),
        pytest.param(gpt(48, 1600, 25, 1024), 50_257, 1_557_611_200, id="gpt2-xl"),
        pytest.param(gpt(12, 768, 12, 2048), 50_257, 125_226_240, id="gpt3-125m"),
        pytest.param(gpt(24, 1024, 16, 2048), 50_257, 355_871_744, id="gpt3-350m"),
        pytest.param(gpt(24, 1536, 16, 2048), 50_257, 760_300_032, id="gpt3-760m"),
        pytest.param(gpt(24, 2048, 24, 2048, 128), 50_257, 1_517_123_584, id="gpt3-1.3b"),
        pytest.param(gpt(32, 2560, 32, 2048), 50_257, 2_651_553_280, id="gpt3-2.7b"),
        pytest.param(gpt(32, 4096, 32, 2048), 50_257, 6_658_404_352, id="gpt3-6.7b"),
        pytest.param(gpt(40, 5140, 40, 2048, 128), 50_257, 12_936_488_380, id="gpt3-13b"),
        pytest.param(gpt(96, 12_288, 96, 2048), 50_257, 174_604_259_328, id="gpt3-175b"),
        pytest.param(gpt(40, 1536, 16, 1024), 51_200, 1_213_479_936, id="megatron-1.2b"),
        pytest.param(gpt(54, 1920, 20, 1024), 51_200, 2_490_408_960, id="megatron-2.5b"),
        pytest.param(gpt(64, 2304, 24, 1024), 51_200, 4_199_109_120, id="megatron-4.2b"),
        pytest.param(gpt(72, 3072, 32, 1024), 51_200, 8_317_040_640, id="megatron-8.3b"),
    ],
)
def test_decoder_has_the_published_number_of_weights(trunk: Decoder, vocab_size: int, published: int) -> None:
    assert count(trunk, vocab_size) == closed_form(trunk, vocab_size) == published


@pytest.mark.parametrize(
    ("trunk", "vocab_size", "billions"),
    [
        pytest.param(gpt(78, 4256, 28, 1024), 50_257, 17.2, id="turing-nlg"),
        pytest.param(gpt(105, 20_480, 128, 2048), 51_200, 529.6, id="mt-nlg-530b"),
        pytest.param(gpt(48, 1536, 24, 1024), 50_270, 1.4, id="grover-mega"),
    ],
)
def test_decoder_has_the_number_of_weights_of_the_closed_form(trunk: Decoder, vocab_size: int, billions: float) -> None:
    assert count(trunk, vocab_size) == closed_form(trunk, vocab_size)
    assert round(closed_form(trunk, vocab_size) / 1e9, 1) == billions
