"""Every shipped recipe passes the checks, has the published number of parameters, and trains a step at tiny scale."""

import pytest
import torch

from orchestration.config import check, load, load_cluster
from orchestration.reports import build_tree
from orchestration.reports.family import count_parameters
from preprocessing.errors import MiscountedWeights
from preprocessing.tokenization import table_rows
from tests.family import RECIPES, loader, model, recipe
from tests.training.parity import hf
from training.engines.upload import to_tensors
from training.losses import SentencePair, SpanBoundary
from training.specs import Decoder, Encoder, ModelTensors, VectorsSpec

POOLER = {"spanbert_base": 110_891_072, "spanbert_large": 338_048_576}  # family.md counts the pooler too


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_number_of_parameters_that_it_states(name: str) -> None:
    """Exactly, from BERT-tiny to 530 billion parameters (reference/family.md, D4)."""
    assert build_tree(recipe(name)).parameters == recipe(name).reported_results["parameters"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_model_has_the_weights_that_its_parts_state(name: str) -> None:
    """The parts have formulas, which `sesame plan` adds up without building the model."""
    assert count_parameters(recipe(name)) == recipe(name).reported_results["parameters"]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("albert_base", ["model.parameter_sharing=attention", "model.num_hidden_groups=3"]),
        ("albert_base", ["model.parameter_sharing=feed_forward"]),
        (
            "bert_base",
            ["model.norm_position=pre", "model.head_dim=48", "model.intermediate_size=1000", "model.num_languages=3"],
        ),
        ("electra_small", ["model.generator_size_ratio=1", "model.weight_sharing=all"]),
        (
            "electra_small",
            ["model.sample_from=uniform", "losses=[{kind: replaced_token_detection, predict: original}]"],
        ),
        (
            "electra_small",
            [
                "model.sample_from=uniform",
                "losses=[{kind: replaced_token_detection, predict: original, predict_at: masked}]",
            ],
        ),
        ("electra_small", ["losses=[{kind: adversarial}, {kind: replaced_token_detection}]"]),
        ("bart_base", ["model.embedding_norm=false", "model.norm_position=pre", "model.bias=false"]),
        ("transformer_xl_base", ["model.token_embedding.div_val=1"]),
        ("gpt2", ["losses=[{kind: next_token, bias: true}]"]),
    ],
)
def test_a_changed_model_has_the_weights_that_its_parts_state(name: str, changes: list[str]) -> None:
    changed = load(name, changes)
    assert count_parameters(changed) == build_tree(changed).parameters


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_fits_its_cluster_at_every_scale(name: str) -> None:
    assert check(recipe(name), load_cluster("one_gpu")) == []
    for scale in ("tiny", "small"):
        assert check(recipe(name, scale), load_cluster("local", ["num_workers=2"])) == []


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", RECIPES)
def test_a_tiny_model_trains_a_step_on_sequences_of_its_recipe(name: str) -> None:
    tiny = recipe(name, "tiny")
    one = model(tiny)
    (batch,) = loader(tiny, steps=1).at(0)
    scores = one(to_tensors(batch, torch.device("cpu")))
    losses = tiny.losses
    assert [scores[loss.kind].count for loss in losses] == [loss.count(batch) for loss in losses]
    assert scores.keys() == {loss.kind for loss in losses}
    total = sum(loss.weight * scores[loss.kind].loss / scores[loss.kind].count for loss in losses)
    total.backward()
    assert torch.isfinite(total)
    norms = [parameter.grad.norm() for parameter in one.parameters() if parameter.grad is not None]
    assert 0 < torch.stack(norms).norm() < 1e4


def declare_one_more(part: type, monkeypatch: pytest.MonkeyPatch) -> None:
    stated, more = part.tensors, ModelTensors((VectorsSpec("more", (1,)),), ())
    monkeypatch.setattr(part, "tensors", lambda self, *given: stated(self, *given) + more)


def test_an_architecture_whose_module_lacks_a_declared_tensor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    declare_one_more(Encoder, monkeypatch)
    expected = r"encoder\.py: encoder declares more \(1,\), but its module has None; correct `tensors`"
    with pytest.raises(MiscountedWeights, match=expected):
        model(recipe("bert_base", "tiny"))


def test_a_head_has_every_tensor_that_its_loss_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    declare_one_more(SentencePair, monkeypatch)
    assert model(recipe("bert_base", "tiny")).heads["pair_label"].more.shape == (1,)


def test_a_loss_whose_head_creates_a_weight_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentencePair, "head", lambda self, *given: torch.nn.Linear(2, 2))
    expected = r"sentence_pair\.py: the head of loss sentence_pair creates weight; declare it in `tensors`"
    with pytest.raises(MiscountedWeights, match=expected):
        model(recipe("bert_base", "tiny"))


SHARING = {  # ALBERT-base without the weights of its heads: reference/family.md, B2.6
    (128, "all"): 11_683_584,
    (128, "attention"): 63_647_232,
    (128, "feed_forward"): 37_686_528,
    (128, "none"): 89_650_176,
    (0, "all"): 31_114_752,
    (0, "attention"): 83_078_400,
    (0, "feed_forward"): 57_117_696,
    (0, "none"): 109_081_344,
    (64, "all"): 9_681_408,
    (256, "all"): 15_687_936,
    (64, "none"): 87_648_000,
    (256, "none"): 93_654_528,
}


@pytest.mark.parametrize(("embedding", "sharing"), SHARING)
def test_albert_has_the_shared_parameters_of_its_table(embedding: int, sharing: str) -> None:
    """The table counts the pooler, which is part of our head for sentence pairs."""
    one = load("albert_base", [f"model.embedding_size={embedding}", f"model.parameter_sharing={sharing}"])
    whole = build_tree(one)
    (heads,) = (part for part in whole.parts if part.name == "heads")
    pooler = 768 * 768 + 768
    assert whole.parameters - heads.parameters + pooler == SHARING[embedding, sharing]


@pytest.mark.parametrize("name", POOLER)
def test_spanbert_has_the_published_parameters_without_the_unused_pooler(name: str) -> None:
    width = recipe(name).model.hidden_size
    assert recipe(name).reported_results["parameters"] + width * width + width == POOLER[name]
    assert any(isinstance(loss, SpanBoundary) for loss in recipe(name).losses)


XLM = {"english": (30_145, 12, 2048, 16, 0, 667_119_041), "en_fr": (64_139, 6, 1024, 8, 2, 141_848_203)}


@pytest.mark.parametrize("which", XLM)
def test_the_other_models_of_xlm_have_the_published_parameters(which: str) -> None:
    vocabulary, layers, width, heads, languages, parameters = XLM[which]
    sizes = [
        f"model.num_hidden_layers={layers}",
        f"model.hidden_size={width}",
        f"model.num_attention_heads={heads}",
        f"model.num_languages={languages}",
    ]
    assert build_tree(load("xlm_mlm", [f"data.tokenizer.vocab_size={vocabulary}", *sizes])).parameters == parameters


MEGATRON_BERT = {(24, 2048, 32): 1_273_358_336, (48, 2560, 40): 3_858_731_520}


@pytest.mark.parametrize("size", MEGATRON_BERT)
def test_larger_megatron_berts_have_the_published_parameters(size: tuple[int, int, int]) -> None:
    sizes = [
        f"model.{key}={value}"
        for key, value in zip(("num_hidden_layers", "hidden_size", "num_attention_heads"), size, strict=True)
    ]
    whole = build_tree(load("megatron_bert_345m", sizes))
    (heads,) = (part for part in whole.parts if part.name == "heads")
    assert whole.parameters - heads.parameters + size[1] * size[1] + size[1] == MEGATRON_BERT[size]


def in_closed_form(trunk: Decoder, vocabulary: int) -> int:
    """The parameters of a GPT-2: embeddings; layers of four projections, two linears and two norms; a last norm."""
    width, inner, joined = trunk.hidden_size, trunk.inner_width, trunk.num_attention_heads * trunk.width_of_head
    attention = width * 3 * joined + 3 * joined + joined * width + width
    forward = width * inner + inner + inner * width + width
    tables = (vocabulary + trunk.position_embedding.rows) * width
    return tables + trunk.num_hidden_layers * (attention + forward + 4 * width) + 2 * width


@pytest.mark.parametrize("name", ["mt_nlg_530b", "turing_nlg", "grover_mega", "gpt3_175b", "gpt3_1_3b", "gpt3_13b"])
def test_gpts_without_a_published_count_are_counted_in_closed_form(name: str) -> None:
    one = recipe(name)
    assert one.reported_results["parameters"] == in_closed_form(one.model, table_rows(one.data.tokenizer))


@pytest.mark.parametrize("name", ["pegasus_base", "pegasus_large"])
def test_pegasus_has_the_parameters_of_transformers_without_the_sinusoids(name: str) -> None:
    """223M and 568M (arXiv:1912.08777, section 6); the class also stores two untrained position tables."""
    one, trunk = recipe(name), recipe(name).model
    sizes = {
        "layers": trunk.num_hidden_layers,
        "ffn_dim": trunk.inner_width,
        "attention_heads": trunk.num_attention_heads,
    }
    sides = {f"{side}_{size}": value for side in ("encoder", "decoder") for size, value in sizes.items()}
    with torch.device("meta"):
        config = hf().PegasusConfig(vocab_size=table_rows(one.data.tokenizer), d_model=trunk.hidden_size, **sides)
        theirs = hf().PegasusForConditionalGeneration(config)
    tensors = {name: tensor.numel() for name, tensor in theirs.named_parameters()}  # shared tensors count once
    positions = [tensors.pop(f"model.{side}.embed_positions.weight") for side in ("encoder", "decoder")]
    assert positions == [config.max_position_embeddings * trunk.hidden_size] * 2
    assert one.reported_results["parameters"] == sum(tensors.values())
    assert one.reported_results["parameters"] // 10**6 == {"pegasus_base": 223, "pegasus_large": 568}[name]


PADDED = {
    "deberta": (128_001, 128_100),
    "t5": (32_100, 32_128),
    "mt5": (250_100, 250_112),
    "megatron_bert": (28_996, 29_056),
    "megatron": (50_257, 51_200),
    "mt_nlg": (50_257, 51_200),
    "opt": (50_265, 50_272),
    "gptj": (50_257, 50_400),
    "pythia": (50_277, 50_304),
    "pythia_6_9b": (50_277, 50_432),
    "pythia_12b": (50_277, 50_688),
    "mosaicbert": (30_522, 30_528),
    "modernbert": (50_285, 50_368),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_padded_embedding_has_rows_without_tokens(name: str) -> None:
    """As in reference/family.md, B6.3 and B4.5; all others, and all at tiny scale, have one row per token."""
    vocab, tiny = recipe(name).data.tokenizer, recipe(name, "tiny").data.tokenizer
    family = name if name in PADDED else next((family for family in PADDED if name.startswith(f"{family}_")), "")
    assert (vocab.vocab_size, table_rows(vocab)) == PADDED.get(family, (vocab.vocab_size, vocab.vocab_size))
    assert table_rows(tiny) == tiny.vocab_size


def is_printed_as(parameters: int, printed: str) -> bool:
    """Whether a published size is this number, rounded or truncated to its digits.

    >>> is_printed_as(335_141_888, "340M"), is_printed_as(285_170_506, "257M")
    (True, False)
    """
    number, value = printed[:-1], parameters / {"M": 10**6, "B": 10**9}[printed[-1]]
    places = len(number.partition(".")[2])
    last = (
        10.0**-places if places else 10.0 ** (len(number) - len(number.rstrip("0")))
    )  # value of the last significant digit
    cut = value // 10.0**-places * 10.0**-places
    return min(abs(round(value / last) * last - float(number)), abs(cut - float(number))) < 1e-6


@pytest.mark.parametrize("name", RECIPES)
def test_a_published_size_equals_that_of_the_model_or_has_a_reason(name: str) -> None:
    """`reported_results.printed` is the rounded size of the model, or a number followed by a reason."""
    printed, _, reason = recipe(name).reported_results.get("printed", "").partition(", ")
    if printed:
        assert is_printed_as(recipe(name).reported_results["parameters"], printed) == (not reason)
