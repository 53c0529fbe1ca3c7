"""Figures of papers beside scores: each has the split that its recipe says it is of."""

import pytest

from orchestration.config import list_names, load, load_task
from orchestration.jobs.paper_figures import paper_figures, split_of


@pytest.mark.parametrize(
    ("recipe", "figure", "split"),
    [
        ("bert_base", "glue.rte", "test"),
        ("bert_base", "squad.f1", "dev"),
        ("bert_large", "swag.accuracy", "dev"),
        ("bert_base_cased", "conll2003.f1", "test"),
        ("bart_large", "glue.mnli_m", "dev"),
        ("bart_large", "xsum.rouge_l", "test"),
        ("bert_wwm", "xnli.accuracy", "test"),
        ("bert_wwm", "drcd.em", "dev"),
        ("albert_xxlarge", "squad2.f1", "dev"),
        ("albert_xxlarge", "race.accuracy", "test"),
        ("roberta_large", "glue.rte", "dev"),
        ("unilm_large", "gigaword.rouge_1", "test"),
        ("unilm_large", "squad2.f1", "dev"),
        ("gpt1", "story_cloze.accuracy", "test"),
        ("xlnet_large", "race.accuracy", "test"),
        ("transformer_xl_base", "wikitext103.perplexity", "test"),
        ("gpt2_xl", "coqa.f1", "dev"),
        ("gpt2_xl", "lambada.accuracy", ""),
        ("gpt2", "wikitext103.perplexity", ""),
    ],
)
def test_a_figure_is_of_the_split_that_its_recipe_says(recipe: str, figure: str, split: str) -> None:
    assert split_of(figure, load(recipe).reported_results) == split


def test_every_figure_of_a_fine_tuned_task_has_a_split() -> None:
    tasks = [load_task(name) for name in list_names("tasks") if name != "unavailable"]
    for recipe in list_names("recipes"):
        expected = load(recipe).reported_results
        for task in (one for one in tasks if one.task.way == "tuned"):
            assert all(" (" in figure for figure in paper_figures(task, expected)), (recipe, task.name)


def test_the_perplexity_of_wikitext2_is_beside_no_figure_of_another_unit() -> None:
    """GPT-2's 29.41 is per token, as others measured it; the score is per word."""
    assert paper_figures(load_task("wikitext2"), load("gpt2").reported_results) == {}


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("xlnet_base", "batches, steps and rate are not published"),
        ("xlm_mlm", "how many steps is not published"),
        ("xlm_tlm", "how many steps is not published"),
    ],
)
def test_what_is_not_published_of_a_training_is_said_beside_its_figures(recipe: str, words: str) -> None:
    """They stood beside "this training"."""
    assert words in load(recipe).reported_results["setting"]


def test_pairs_of_roberta_have_no_short_rows() -> None:
    """Section 3.1 of the paper; its figures were of another training than these recipes."""
    for recipe in ("roberta_segment_pair", "roberta_sentence_pair"):
        assert load(recipe).science["data"]["packing"]["short_seq_prob"] == 0, recipe


def test_figures_that_others_print_of_a_net_stand_apart_from_those_of_its_paper() -> None:
    """BERT's exact matches of SQuAD in table 2 on dev, and 85.083 on its leaderboard; SWAG of the first GPT."""
    bert, gpt = load("bert_large").reported_results, load("gpt1").reported_results
    assert (bert["squad"]["em"], load("bert_base").reported_results["squad"]["em"]) == (84.1, 80.8)
    apart = bert["also"]["this net on test, of SQuAD 1.1 one that learnt TriviaQA before"]
    assert (apart["squad"]["em"], apart["swag"]["accuracy"]) == (85.083, 86.28)
    assert "swag" not in gpt
    assert gpt["also"]["this net, fine-tuned on SWAG"]["swag"]["accuracy"] == 77.97
