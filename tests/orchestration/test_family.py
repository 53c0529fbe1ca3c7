"""The family on paper: published parameter counts in closed form, and differences that read like an abstract."""

import pytest

from orchestration.family import abstract, net, say_choose, say_rewrite, say_segment, say_vocab, training_flops
from orchestration.recipe import load, names
from preprocessing.choose import Spans, Words
from preprocessing.rewrite import Cloze
from preprocessing.segment import Packed, Pair
from preprocessing.vocab import Unigram, WordPiece


@pytest.mark.parametrize(
    ("name", "parameters"), [("bert_base", 110_106_428), ("roberta_base", 124_697_433), ("gpt2", 124_439_808)]
)
def test_parameters_in_closed_form_are_the_published_ones(name, parameters):
    assert net(load(name)).parameters == parameters


def test_bert_large_has_the_published_parameters_too():
    large = load("bert_base", ["trunk.layers=24", "trunk.width=1024", "trunk.heads=16"])
    assert net(large).parameters == 336_226_108


@pytest.mark.parametrize(
    ("size", "parameters"),
    [((2, 128, 2), 4_433_468), ((4, 256, 4), 11_267_900), ((4, 512, 8), 29_058_876), ((8, 512, 8), 41_668_412)],
)
def test_bert_miniatures_have_the_published_parameters(size, parameters):
    overrides = [f"trunk.{key}={value}" for key, value in zip(("layers", "width", "heads"), size, strict=True)]
    assert net(load("bert_base", overrides)).parameters == parameters


def test_the_layers_of_gpt2_medium_add_up():
    medium = load("gpt2", ["trunk.layers=24", "trunk.width=1024", "trunk.heads=16"])
    assert net(medium).parameters == 354_823_168


def test_bert_costs_what_six_flops_per_weight_and_token_say():
    recipe = load("bert_base")
    weights = 85_000_000 + 0.15 * 23_440_896
    assert training_flops(recipe) == pytest.approx(6 * weights * recipe.num_tokens, rel=0.1)


def test_roberta_against_bert_reads_like_the_abstract_of_its_paper():
    lines = abstract(load("bert_base"), load("roberta_base"))
    assert lines[:10] == [
        "trains on the text of books_wiki_news, instead of wikipedia_books",
        "reads 50,265 byte-level BPE pieces, instead of 30,522 lower-cased word pieces",
        "sees full sentences packed across documents, instead of pairs of segments, half of them strangers",
        "removes next sentence prediction",
        "changes the masks in every epoch, instead of repeating 10 fixed ones",
        "trains with bigger batches: 8,192 rows instead of 256",
        "trains on longer rows: 512 tokens throughout, instead of 128 tokens for 90% of the steps, then 512",
        "trains longer: 2.1e12 tokens in 500,000 steps, instead of 4.3e10 in 1,000,000",
        "learns at a peak rate of 0.0006 after 24,000 steps of warm-up, instead of 0.0001 after 10,000",
        "keeps the net: encoder, 12 layers, width 768, 12 heads, post-norm",
    ]


def test_a_difference_that_no_sentence_covers_is_listed_by_its_key():
    lines = abstract(load("bert_base"), load("bert_base", ["optim.beta2=0.98", "trunk.dropout=0.0"]))
    assert lines == [
        "keeps the net: encoder, 12 layers, width 768, 12 heads, post-norm",
        "trunk.dropout: 0, was 0.1",
        "optim.beta2: 0.98, was 0.999",
    ]


@pytest.mark.parametrize("name", names("recipes"))
def test_a_recipe_differs_from_itself_in_nothing(name):
    assert len(abstract(load(name), load(name))) == 1


@pytest.mark.parametrize(
    "override",
    [
        "data.corpus=x", "data.vocab.size=99", "data.vocab.lowercase=false", "data.segment.short=0.5",
        "objective.choose.rate=0.3", "objective.choose={kind: spans}", "objective.rewrite.swap=0.2", "phases.0.batch=9",
        "phases.0.steps=9", "phases.1.length=9", "optim.warmup=9",
        "objective.duplicates=1", "optim.peak=9", "trunk.width=1536", "seed=9",
        "data.segment.negative=swap", "objective.losses=[{kind: masked_tokens}]", "objective.losses.0.weight=2",
        "data.vocab.file=a.txt", "objective.rewrite.swap_from=vocabulary", "evals=[]",
    ],
)  # fmt: skip
def test_no_change_goes_unsaid(override):
    lines = abstract(load("bert_base"), load("bert_base", [override]))
    assert [line for line in lines if not line.startswith("keeps the net")]


def test_parts_are_said_in_words():
    assert say_segment(Pair(negative="swap")) == "pairs of segments, half of them in the wrong order"
    assert say_segment(Packed(fill="sentences", cross_documents=False)) == "full sentences packed inside documents"
    assert say_choose(Words()) == "15% of the tokens, in whole words"
    assert say_choose(Spans(longest=5)) == "15% of the tokens, in spans of up to 5 words"
    assert say_rewrite(Cloze(unit="span")) == "80% masked, 10% swapped, 10% kept, drawn per span"
    assert say_vocab(Unigram()) == "32,000 unigram pieces"
    assert say_vocab(WordPiece(lowercase=False)) == "30,522 cased word pieces"
