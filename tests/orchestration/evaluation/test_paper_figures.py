"""Reported scores of papers: each has the split that its recipe states."""

import pytest

from orchestration.config import list_names, load, load_task
from orchestration.evaluation.paper_figures import paper_figures, split_of


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
def test_reported_score_has_the_split_that_its_recipe_states(recipe: str, figure: str, split: str) -> None:
    assert split_of(figure, load(recipe).reported_results) == split


def test_every_reported_score_of_a_fine_tuned_task_has_a_split() -> None:
    tasks = [load_task(name) for name in list_names("tasks") if name != "unavailable"]
    for recipe in list_names("recipes"):
        expected = load(recipe).reported_results
        for task in (one for one in tasks if one.task.way == "tuned"):
            assert all(" (" in figure for figure in paper_figures(task, expected)), (recipe, task.name)


def test_wikitext2_perplexity_is_not_compared_with_another_unit() -> None:
    """GPT-2's 29.41, as measured by others, is per token; this score is per word."""
    assert paper_figures(load_task("wikitext2"), load("gpt2").reported_results) == {}


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("xlnet_base", "batch size, steps and learning rate are not published"),
        ("xlm_mlm", "the number of steps is not published"),
        ("xlm_tlm", "the number of steps is not published"),
    ],
)
def test_unpublished_settings_are_stated_beside_the_reported_scores(recipe: str, words: str) -> None:
    """These scores were once labeled "this training", although parts of the training were not published."""
    assert words in load(recipe).reported_results["setting"]


def test_roberta_pair_recipes_have_no_short_sequences() -> None:
    """Section 3.1 of the paper. These recipes once trained differently from the models with the reported scores."""
    for recipe in ("roberta_segment_pair", "roberta_sentence_pair"):
        assert load(recipe).science["data"]["packing"]["short_seq_prob"] == 0, recipe


def test_scores_reported_by_others_are_separate_from_those_of_the_paper() -> None:
    """BERT's exact match on SQuAD dev in table 2, its 85.083 on the leaderboard, and SWAG of the first GPT."""
    bert, gpt = load("bert_large").reported_results, load("gpt1").reported_results
    assert (bert["squad"]["em"], load("bert_base").reported_results["squad"]["em"]) == (84.1, 80.8)
    apart = bert["also"]["this net on test, of SQuAD 1.1 one that learnt TriviaQA before"]
    assert (apart["squad"]["em"], apart["swag"]["accuracy"]) == (85.083, 86.28)
    assert "swag" not in gpt
    assert gpt["also"]["this net, fine-tuned on SWAG"]["swag"]["accuracy"] == 77.97
