"""Scores of generated text compared with known values."""

import string
from collections import Counter

import numpy as np
import pytest

from training.evaluation.metrics import bleu, chrf, coqa_f1, rouge

GOLDS, TEXTS = ["the cat sat on a mat .", "a dog is running"], ["the cat sat on the mat .", "a dog runs"]
LINES = "the cats were running fast .\nthey stopped .", "a cat runs fast .\nthey stopped"


def test_bleu_and_chrf_report_their_signatures() -> None:
    found = bleu(GOLDS, TEXTS)
    assert found.score == pytest.approx(40.88, abs=0.005)
    assert found.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert chrf(GOLDS, TEXTS).score == pytest.approx(53.02, abs=0.005)


def test_bleu_of_a_short_text_uses_all_four_orders() -> None:
    """The effective order, meant for single sentences, leaves out the orders for which such a text has no n-grams."""
    from sacrebleu.metrics import BLEU

    assert bleu(GOLDS[1:], TEXTS[1:]).score == 0
    assert BLEU(effective_order=True).sentence_score(TEXTS[1], GOLDS[1:]).score == pytest.approx(39.43, abs=0.005)


@pytest.mark.parametrize(
    ("golds", "texts", "score"),
    [
        (["a"], ["a"], 100),
        (["abc"], ["a b c"], 100),
        (["ab"], ["aa"], 25),
        (["a", "c"], ["a", "b"], 50),
        (["b"], [""], 0),
    ],
)
def test_chrf_equals_known_values(golds: list[str], texts: list[str], score: float) -> None:
    """The values of sacrebleu's own tests that do not depend on beta."""
    assert chrf(golds, texts).score == pytest.approx(score)


def test_chrf_of_random_texts_equals_its_formula() -> None:
    """Popovic 2015: mean precision and recall over the orders up to 6, with twice the weight on recall."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        golds, texts = ([" ".join(rng.choice(list("abcd"), 9)) for _ in range(3)] for _ in range(2))
        shares = []
        for order in range(1, 7):
            same, has = 0, np.zeros(2)
            for pair in zip(texts, golds, strict=True):
                grams = [
                    Counter(flat[at : at + order] for at in range(10 - order)) for flat in map(without_spaces, pair)
                ]
                same, has = same + (grams[0] & grams[1]).total(), has + [each.total() for each in grams]
            shares.append(same / has)
        precision, recall = np.mean(shares, axis=0)
        assert chrf(golds, texts).score == pytest.approx(100 * 5 * precision * recall / (4 * precision + recall))


def without_spaces(text: str) -> str:
    return text.replace(" ", "")


def test_rouge_equals_known_values_with_and_without_stemming() -> None:
    bare = rouge([LINES[0]], [LINES[1]], stem=False)
    assert [bare[name] for name in ("rouge1", "rouge2", "rougeL")] == pytest.approx(
        [46.1538, 36.3636, 46.1538], abs=1e-3
    )
    stemmed = rouge([LINES[0]], [LINES[1]])
    assert [stemmed[name] for name in ("rouge1", "rouge2")] == pytest.approx([76.9231, 54.5455], abs=1e-3)


def test_the_order_of_lines_affects_rouge_l_and_not_rouge_lsum() -> None:
    found = rouge(["a b c\nd e f"], ["d e f\na b c"])
    assert (found["rougeL"], found["rougeLsum"]) == (50.0, 100.0)


def test_rouge_equals_the_examples_of_its_paper() -> None:
    """Lin 2004 (W04-1013), 3.1 and 3.2."""
    reference = "police killed the gunman"
    for text, longest, two in (("police kill the gunman", 75, 100 / 3), ("the gunman kill police", 50, 100 / 3)):
        found = rouge([reference], [text], stem=False)
        assert (found["rougeL"], found["rouge2"]) == pytest.approx((longest, two))
    union = rouge(["w1 w2 w3 w4 w5"], ["w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5"])
    assert union["rougeLsum"] == pytest.approx(100 * 2 * 0.8 * 0.4 / 1.2)  # recall 4/5, precision 4/10


def test_rouge_of_text_without_latin_words_is_refused() -> None:
    with pytest.raises(ValueError, match="a-z and 0-9"):
        rouge(["日本"], ["日本"])


def test_coqa_leaves_out_each_annotator_in_turn() -> None:
    assert coqa_f1([["white", "white", "cat"]], ["white"]) == 100
    assert coqa_f1([["white", "white", "cat"]], ["cat"]) == pytest.approx(66.6667, abs=1e-3)
    assert coqa_f1([["white"]], ["cat"]) == 0


def reference_coqa(golds: list[str], predicted: str) -> float:
    """The score of one answer in the evaluator of coqa-baselines, step by step."""

    def words(text: str) -> list[str]:
        kept = "".join(char for char in text.lower() if char not in string.punctuation)
        return [word for word in kept.split() if word not in ("a", "an", "the")]

    def overlap(gold: str) -> float:
        right, actual = words(gold), words(predicted)
        if not right or not actual:
            return float(right == actual)
        same = sum(min(right.count(word), actual.count(word)) for word in set(right))
        return 2 * same / (len(right) + len(actual))

    if len(golds) == 1:
        return overlap(golds[0])
    each = [max(overlap(gold) for at, gold in enumerate(golds) if at != out) for out in range(len(golds))]
    return sum(each) / len(each)


def test_random_conversations_equal_the_coqa_reference() -> None:
    rng = np.random.default_rng(0)
    parts = ["the", "A", "cat", "Cat,", "white", "no.", "yes", "U.S.", ""]
    for _ in range(1_000):
        golds = [[" ".join(rng.choice(parts, rng.integers(0, 4))) for _ in range(rng.integers(1, 5))] for _ in range(3)]
        texts = [str(rng.choice([*answers, " ".join(rng.choice(parts, 2))])) for answers in golds]
        wanted = 100 * sum(reference_coqa(*each) for each in zip(golds, texts, strict=True)) / 3
        assert coqa_f1(golds, texts) == pytest.approx(wanted)


def test_different_numbers_of_texts_and_references_are_refused() -> None:
    for metric in (bleu, chrf, rouge):
        with pytest.raises(ValueError, match="expected equal numbers"):
            metric(["a"], [])  # type: ignore[operator]
