"""Scores of generated text against known values."""

import pytest

from training.metrics import bleu, chrf, coqa_f1, rouge

GOLDS, TEXTS = ["the cat sat on a mat .", "a dog is running"], ["the cat sat on the mat .", "a dog runs"]
LINES = "the cats were running fast .\nthey stopped .", "a cat runs fast .\nthey stopped"


def test_bleu_and_chrf_say_how_they_count() -> None:
    found = bleu(GOLDS, TEXTS)
    assert found.score == pytest.approx(40.88, abs=0.005)
    assert found.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert chrf(GOLDS, TEXTS).score == pytest.approx(53.02, abs=0.005)


def test_rouge_with_and_without_stems() -> None:
    bare = rouge([LINES[0]], [LINES[1]], stem=False)
    assert [bare[name] for name in ("rouge1", "rouge2", "rougeL")] == pytest.approx(
        [46.1538, 36.3636, 46.1538], abs=1e-3
    )
    stemmed = rouge([LINES[0]], [LINES[1]])
    assert [stemmed[name] for name in ("rouge1", "rouge2")] == pytest.approx([76.9231, 54.5455], abs=1e-3)


def test_the_order_of_lines_counts_for_l_and_not_for_lsum() -> None:
    found = rouge(["a b c\nd e f"], ["d e f\na b c"])
    assert (found["rougeL"], found["rougeLsum"]) == (50.0, 100.0)


def test_rouge_of_text_without_latin_words_is_refused() -> None:
    with pytest.raises(ValueError, match="a-z and 0-9"):
        rouge(["日本"], ["日本"])


def test_coqa_leaves_each_person_out_in_turn() -> None:
    assert coqa_f1([["white", "white", "cat"]], ["white"]) == 100
    assert coqa_f1([["white", "white", "cat"]], ["cat"]) == pytest.approx(66.6667, abs=1e-3)
    assert coqa_f1([["white"]], ["cat"]) == 0


def test_as_many_texts_as_references() -> None:
    for metric in (bleu, chrf, rouge):
        with pytest.raises(ValueError, match="as many of both"):
            metric(["a"], [])  # type: ignore[operator]
