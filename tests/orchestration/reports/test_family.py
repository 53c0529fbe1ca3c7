"""Descriptions of the model family: trees of parts, a table of all recipes, and differences in sentences."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.config import load
from orchestration.reports import build_tree, describe_difference, family, training_flops
from preprocessing.masking import SpanMasking, WholeWordMasking
from preprocessing.objectives import Denoising, MaskedLM, SpanCorruption
from preprocessing.packing import Contiguous, SegmentPair
from preprocessing.tokenization import Unigram, WordPiece
from tests.family import RECIPES, recipe
from tests.for_all import for_all

MODELS = Path(__file__).parents[3] / "docs" / "reference" / "models.md"


def parts(node):
    """Yield every part of a tree; outer parts come first."""
    yield node
    for part in node.parts:
        yield from parts(part)


def test_model_is_a_tree_of_named_parts():
    named = {part.name: part for part in build_tree(recipe("bert_base")).parts}
    assert list(named) == ["tokens", "positions", "segments", "embedding norm", "12 blocks", "heads"]
    blocks = named["12 blocks"]
    assert [part.name for part in blocks.parts] == ["attention", "attention norm", "feed forward", "feed forward norm"]
    assert blocks.parameters == 12 * 7_087_872


def test_shared_parameters_are_counted_once():
    albert = build_tree(recipe("albert_base"))
    assert {part.name: part.parameters for part in parts(albert)}["attention"] == 4 * (768 * 768 + 768)


@pytest.mark.parametrize("name", ["bert_base", "albert_base", "electra_small", "t5_small", "transformer_xl_base"])
def test_parameters_of_the_parts_add_up(name):
    whole = build_tree(recipe(name))
    for part in parts(whole):
        assert part.parameters == part.own + sum(inner.parameters for inner in part.parts)
    assert whole.parameters == recipe(name).reported_results["parameters"]


def test_parameters_are_counted_for_changed_recipes():
    assert load("bert_base", ["model.num_hidden_layers=13"]).reported_results == {}
    assert family.count_parameters(load("bert_base", ["model.num_hidden_layers=13"])) == 110_106_428 + 7_087_872
    assert family.count_parameters(load("bert_base", scale="tiny")) < 1_000_000


def test_bert_flops_are_six_per_weight_and_token():
    one = recipe("bert_base")
    weights = 85_000_000 + 0.15 * 23_440_896
    assert training_flops(one) == pytest.approx(6 * weights * one.num_tokens, rel=0.1)


def test_t5_flops_include_the_encoder_and_short_targets():
    """The decoder reads 114 tokens for each 512 tokens of the encoder, and the keys and values of all 512."""
    one = recipe("t5_base")
    encoder, crossed, looked_at = 85e6, 14e6, 2 * 12 * 512 * 768
    decoder, answer = 99e6, 24.7e6
    work = 6 * (encoder + crossed + looked_at + 114 / 512 * (decoder + answer)) * one.num_tokens
    assert training_flops(one) == pytest.approx(work, rel=0.05)


def test_difference_of_bert_and_roberta():
    lines = describe_difference(recipe("bert_base"), recipe("roberta_base"))
    assert lines[:11] == [
        "trains on the text of books_wiki_news, instead of wikipedia_books",
        "reads 50,265 byte-level BPE tokens, instead of 30,522 lower-cased WordPiece tokens",
        "packing: full sentences packed across documents, "
        "instead of pairs of segments, 50% with a random second segment (NSP)",
        "removes next sentence prediction",
        "masks dynamically, instead of statically with 10 copies",
        "trains with larger batches: 8,192 sequences instead of 256",
        "trains on longer sequences: 512 tokens throughout, instead of 128 tokens for 90% of the steps, then 512",
        "trains longer: 2.1e12 tokens in 500,000 steps, instead of 4.3e10 in 1,000,000",
        "has a peak learning rate of 0.0006 after 24,000 steps of warm-up, instead of 0.0001 after 10,000",
        "learning rate: linear decay from the peak, instead of linear decay from step 0",
        "keeps the architecture: encoder, 12 layers, width 768, 12 heads, post-norm",
    ]


def test_difference_of_mixtures():
    """Phases without a mixture have that of data; equal phases are named once."""
    plain = recipe("gpt3_125m")
    mixed = replace(plain, data=replace(plain.data, mixture={"web": 9, "wiki": 1}))
    last = replace(plain.phases[0], mixture={"wiki": 1})
    (line,) = [one for one in describe_difference(plain, mixed) if "mix" in one]
    assert line == "mixes 9 web and 1 wiki, instead of as the corpus file says"
    annealed = replace(mixed, phases=(*plain.phases, *plain.phases, last))
    (line,) = [one for one in describe_difference(mixed, annealed) if "mix" in one]
    assert line == "mixes 9 web and 1 wiki, then 1 wiki, instead of 9 web and 1 wiki"


def test_difference_of_bert_and_albert():
    lines = describe_difference(recipe("bert_base"), recipe("albert_base"))
    assert lines[1:5] == [
        "packing: pairs of segments, 50% swapped (SOP), "
        "instead of pairs of segments, 50% with a random second segment (NSP)",
        "removes next sentence prediction",
        "adds sentence order prediction",
        "masks 15% of the tokens, in n-grams of up to 3 words, instead of 15% of the tokens",
    ]
    assert lines[9:14] == [
        "optimizes with LAMB, instead of Adam",
        "has a peak learning rate of 0.00176 after 3,125 steps of warm-up, instead of 0.0001 after 10,000",
        "keeps the architecture: encoder, 12 layers, width 768, 12 heads, post-norm",
        "has factorized token embeddings of size 128, instead of token embeddings of the hidden size",
        "has all parameters shared by all layers, instead of no parameters shared between layers",
    ]


def test_difference_of_bert_and_spanbert():
    lines = describe_difference(recipe("bert_base_cased"), recipe("spanbert_base"))
    assert lines[:5] == [
        "packing: full sentences packed inside documents, overlong sentences dropped, "
        "instead of pairs of segments, 50% with a random second segment (NSP)",
        "removes next sentence prediction",
        "adds span boundaries",
        "masks 15% of the tokens, in spans of up to 10 words, instead of 15% of the tokens",
        "objective: 80% masked, 10% random, 10% kept, drawn per span, "
        "instead of 80% masked, 10% random, 10% kept, drawn per token",
    ]


def test_difference_of_gpt2_and_transformer_xl():
    lines = describe_difference(recipe("gpt2"), recipe("transformer_xl_base"))
    assert lines[2] == (
        "packing: streams of continuous text; each sequence continues the previous one, instead of continuous text"
    )
    assert lines[9:12] == [
        "has adaptive token embeddings and softmax, with clusters that end at 20,000, 40,000, 200,000, "
        "instead of token embeddings of the hidden size",
        "has relative positions, instead of learned absolute positions",
        "has a memory of 150 tokens, instead of no memory",
    ]


def test_difference_of_t5_and_bart():
    lines = describe_difference(recipe("t5_base"), recipe("bart_base"))
    assert lines[2:5] == [
        "packing: full sentences packed inside documents, instead of continuous text",
        "predicts the whole text, instead of masked spans",
        "objective: source: sentences shuffled, 30% of the words masked in runs of 3; "
        "targets: the original text, "
        "instead of each selected span replaced by one sentinel; targets: the spans",
    ]
    assert {
        "optimizes with Adam, instead of Adafactor",
        "has learned absolute positions, instead of relative position biases in 32 buckets",
        "has LayerNorm, instead of RMSNorm",
    } <= set(lines)


def test_difference_of_bart_and_pegasus():
    lines = describe_difference(recipe("bart_base"), recipe("pegasus_base"))
    assert lines[2:4] == [
        "predicts the gap sentences, instead of the whole text",
        "objective: 30% of the sentences masked and predicted (highest ROUGE-1 F1), instead of source: "
        "sentences shuffled, 30% of the words masked in runs of 3; targets: the original "
        "text",
    ]
    assert {
        "optimizes with Adafactor, instead of Adam",
        "has sinusoidal absolute positions, instead of learned absolute positions",
        "model.scale_embedding: true, was false",
        "model.embedding_norm: false, was true",
    } <= set(lines)


def test_difference_without_a_sentence_is_listed_by_its_key():
    lines = describe_difference(
        recipe("bert_base"), load("bert_base", ["optimizer.beta2=0.98", "model.hidden_dropout=0.0"])
    )
    assert lines == [
        "keeps the architecture: encoder, 12 layers, width 768, 12 heads, post-norm",
        "model.hidden_dropout: 0, was 0.1",
        "optimizer.beta2: 0.98, was 0.999",
    ]


@for_all(RECIPES)
def test_recipe_does_not_differ_from_itself(name):
    assert len(describe_difference(recipe(name), recipe(name))) == 1


CHANGES = {
    "bert_base": [
        "data.corpus=x", "data.tokenizer.vocab_size=99", "data.tokenizer.lowercase=false",
        "data.packing.short_seq_prob=0.5",
        "masking.rate=0.3", "masking={kind: span}", "objective.random_replace_prob=0.2", "phases.0.global_batch_size=9",
        "phases.0.steps=9", "phases.1.seq_length=9", "optimizer.warmup_steps=9",
        "data.static_masks=1", "optimizer.learning_rate=9", "model.hidden_size=1536", "seed=9",
        "data.packing.negatives=swapped", "data.packing.unit=sentence", "losses=[{kind: masked_tokens}]",
        "losses.0.weight=2", "data.tokenizer.path=a.txt", "objective.random_token_source=vocabulary", "eval_tasks=[]",
        "model.embedding_size=9", "model.parameter_sharing=all", "model.position_embedding={kind: sinusoidal}",
        "model.attention_window={kind: sliding, size: 8}",
        "optimizer={kind: lamb, learning_rate: 1e-4, warmup_steps: 10_000}", "data.packing.num_separators=2",
    ],
    "albert_base": [
        "model.num_hidden_groups=3", "model.embedding_size=0", "model.parameter_sharing=attention",
        "masking.max_predictions_per_seq=9",
        "data.tokenizer.lowercase=false",
    ],
    "transformer_xl_base": [
        "model.position_embedding.mem_len=9", "model.token_embedding.cutoffs=[9]", "model.token_embedding.div_val=2",
        "model.position_embedding.clamp_len=9",
    ],
    "t5_base": [
        "objective.targets=all", "objective.collapse_spans=false", "masking.mean_noise_span_length=9",
        "model.norm_type=layernorm", "model.position_embedding.num_buckets=9", "data.tokenizer.extra_ids=9",
        "data.packing.add_separators=true",
        "data.tokenizer.padded_vocab_size=40_000",
    ],
    "bart_base": ["objective.noise_types=[token_masking]", "objective.mask_ratio=0.2", "objective.poisson_lambda=9"],
    "pegasus_base": [
        "objective.gap_sentences_ratio=0.2", "objective.selection=lead",
        "model.position_embedding={kind: learned, max_position_embeddings: 512}",
        "model.scale_embedding=false", "data.packing.cross_documents=true",
    ],
    "xlnet_base": ["objective.perm_size=9", "data.packing.reuse_len=9", "masking.group_size=3"],
    "xlm_tlm": [
        "data.packing.translation_ratio=0.3", "data.packing.reset_positions=false", "masking.sample_alpha=0",
        "data.tokenizer.language_sampling_alpha=1",
    ],
    "ernie_1": ["masking.token_level_prob=0", "data.packing.negatives=dialogue"],
    "spanbert_entities": ["masking.phrase_prob=0.3"],
    "spanbert_single": ["data.packing.overlong=truncate"],
    "electra_small": ["model.generator_size_ratio=0.5", "model.allow_correct=false", "losses.1.weight=1"],
    "mass_base": ["masking.block_size=0", "objective.hide_masked_from_decoder=true"],
    "unilm_large": [
        "masking.ngram_unit=word",
        "objective={kind: unified_lm, bidirectional_prob: 1, seq2seq_prob: 0, left_to_right_prob: 0, "
        "right_to_left_prob: 0}",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "override"), [(name, override) for name in CHANGES for override in CHANGES[name]])
def test_every_change_is_reported(name, override):
    lines = describe_difference(recipe(name), load(name, [override]))
    assert [line for line in lines if not line.startswith("keeps the architecture")]


def test_parts_are_described_in_words():
    assert SegmentPair(negatives="swapped").describe() == "pairs of segments, 50% swapped (SOP)"
    assert Contiguous(unit="sentence", cross_documents=False).describe() == "full sentences packed inside documents"
    assert WholeWordMasking().describe() == "15% of the tokens, in whole words"
    assert SpanMasking(max_span_length=5).describe() == "15% of the tokens, in spans of up to 5 words"
    assert MaskedLM(replace_unit="span").describe() == "80% masked, 10% random, 10% kept, drawn per span"
    assert SpanCorruption().describe() == "each selected span replaced by one sentinel; targets: the spans"
    assert (
        Denoising(noise_types=("token_deletion",)).describe()
        == "source: 30% of the tokens deleted; targets: the original text"
    )
    assert Unigram().describe() == "32,000 unigram tokens"
    assert (
        Unigram(vocab_size=32_100, padded_vocab_size=32_128).describe()
        == "32,100 unigram tokens, in a table of 32,128 rows"
    )
    assert Unigram(vocab_size=30_000, lowercase=True).describe() == "30,000 lower-cased unigram tokens"
    assert WordPiece(lowercase=False).describe() == "30,522 cased WordPiece tokens"


@for_all(RECIPES)
def test_each_recipe_has_an_oracle_and_a_year(name):
    assert family.oracle(recipe(name))
    assert 2018 <= family.row(recipe(name))["year"] <= 2024


ORACLES = {
    "bert_large": "BertForPreTraining",
    "roberta_large": "RobertaForMaskedLM",
    "albert_xxlarge": "AlbertForPreTraining",
    "ernie_1": "BertForPreTraining",
    "electra_base": "ElectraForPreTraining",
    "xlm_tlm": "XLMWithLMHeadModel",
    "longformer_base": "LongformerForMaskedLM",
    "megatron_bert_345m": "MegatronBertForPreTraining",
    "unilm_large": "BertForPreTraining",
    "spanbert_base": "BertForMaskedLM; the rest in closed form",
    "gpt1": "OpenAIGPTLMHeadModel",
    "gpt3_175b": "GPT2LMHeadModel",
    "transformer_xl_base": "XLNetModel with causal attention, and with one longer sequence instead of the memory",
    "xlnet_large": "XLNetLMHeadModel",
    "bart_large": "BartForConditionalGeneration",
    "pegasus_large": "PegasusForConditionalGeneration",
    "t5_11b": "T5ForConditionalGeneration",
    "mass_mt": "closed form; equal to MLM with one masked token, and to CLM with all tokens masked",
}


@pytest.mark.parametrize("name", ORACLES)
def test_oracle_is_the_class_that_computes_the_same_model(name):
    assert family.oracle(recipe(name)) == ORACLES[name]


def test_family_table_has_a_row_per_recipe():
    table = family.markdown(family.sort_recipes(map(recipe, RECIPES))).splitlines()
    assert [cell.strip() for cell in table[0].strip("|").split("|")] == list(family.COLUMNS)
    assert {line.count("|") for line in table} == {len(family.COLUMNS) + 1}
    assert sorted(line.split("`")[1] for line in table[2:]) == RECIPES
    assert "[RoBERTa](https://arxiv.org/abs/1907.11692)" in "\n".join(table)


def test_models_page_contains_the_printed_table():
    found = re.findall(r"^\| recipe \| paper .*\n(?:\|.*\n)+", MODELS.read_text(), re.MULTILINE)
    assert found == [family.markdown(family.sort_recipes(map(recipe, RECIPES))) + "\n"]


@pytest.mark.slow
def test_recipes_command_prints_json_and_markdown():
    command = [sys.executable, "-m", "orchestration.cli", "recipes", "--markdown"]
    table = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert table["gpt2_xl"]["parameters"] == 1_557_611_200
    assert table["gpt2_xl"]["oracle"] == "GPT2LMHeadModel"
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == family.markdown(family.sort_recipes(map(recipe, RECIPES))) + "\n"
