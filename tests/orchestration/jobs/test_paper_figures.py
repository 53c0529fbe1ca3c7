"""Figures of papers beside scores: each has the split that its recipe says it is of."""

import pytest

from orchestration.config import load, load_task, names
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
    assert split_of(figure, load(recipe).expected) == split


def test_every_figure_of_a_fine_tuned_task_has_a_split() -> None:
    tasks = [load_task(name) for name in names("tasks") if name != "unavailable"]
    for recipe in names("recipes"):
        expected = load(recipe).expected
        for task in (one for one in tasks if one.task.way == "tuned"):
            assert all(" (" in figure for figure in paper_figures(task, expected)), (recipe, task.name)


def test_the_perplexity_of_wikitext2_is_beside_no_figure_of_another_unit() -> None:
    """GPT-2's 29.41 is per token, as others measured it; the score is per word."""
    assert paper_figures(load_task("wikitext2"), load("gpt2").expected) == {}
