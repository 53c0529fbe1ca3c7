"""Metrics of generated text: BLEU and chrF (sacrebleu), ROUGE (rouge-score), CoQA's F1."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from training.evaluation.metrics.squad import f1_or_empty

ROUGES: Final = ("rouge1", "rouge2", "rougeL", "rougeLsum")


@dataclass(frozen=True)
class SignedScore:
    """A score in percent, and a signature of its computation: tokenization, case, smoothing, version."""

    score: float
    signature: str


def bleu(golds: Sequence[str], predicted: Sequence[str], tokenize: str = "13a") -> SignedScore:
    """Corpus BLEU with one reference per text (Papineni et al. 2002), by sacrebleu (arXiv:1804.08771).

    >>> bleu(["the cat sat on a mat .", "a dog is running"], ["the cat sat on the mat .", "a dog runs"]).signature[:8]
    'nrefs:1|'

    `tokenize` is a tokenizer of sacrebleu: `zh`, `ja-mecab` or `char` for text without blanks between words.
    """
    from sacrebleu.metrics import BLEU

    _same_length(golds, predicted)
    metric = BLEU(tokenize=tokenize)
    return SignedScore(float(metric.corpus_score(list(predicted), [list(golds)]).score), str(metric.get_signature()))


def chrf(golds: Sequence[str], predicted: Sequence[str]) -> SignedScore:
    """Corpus chrF2: the F-score of character n-grams (Popović 2015)."""
    from sacrebleu.metrics import CHRF

    _same_length(golds, predicted)
    metric = CHRF()
    return SignedScore(float(metric.corpus_score(list(predicted), [list(golds)]).score), str(metric.get_signature()))


def rouge(golds: Sequence[str], predicted: Sequence[str], *, stem: bool = True) -> dict[str, float]:
    """F1 of ROUGE-1, -2, -L and -Lsum in percent (Lin 2004), as means over the texts.

    L compares whole texts. Lsum compares lines; each line should be one sentence. Papers on CNN/DailyMail report Lsum
    with `stem`. ROUGE uses only the characters a-z and 0-9, so text in other scripts scores 0. Raises ValueError if all
    references have no such characters.
    """
    from rouge_score.rouge_scorer import RougeScorer

    _same_length(golds, predicted)
    if not any(map(measure_kept_by_rouge, golds)):
        raise ValueError("ROUGE uses only the characters a-z and 0-9, and no reference has any; use chrF or BLEU")
    scorer = RougeScorer(list(ROUGES), use_stemmer=stem)
    found = [scorer.score(gold, text) for gold, text in zip(golds, predicted, strict=True)]
    return {name: 100 * mean(scores[name].fmeasure for scores in found) for name in ROUGES}


def measure_kept_by_rouge(text: str) -> float:
    """The fraction of letters and digits that ROUGE keeps: a-z in both cases and 0-9; 0 for a text without any.

    >>> measure_kept_by_rouge("日本 a1"), measure_kept_by_rouge("...")
    (0.5, 0.0)
    """
    letters = [char.isascii() for char in text if char.isalnum()]
    return sum(letters) / max(1, len(letters))


def coqa_f1(golds: Sequence[Sequence[str]], predicted: Sequence[str]) -> float:
    """CoQA's F1 in percent (arXiv:1808.07042, 4.1).

    If a question has several human answers, each is left out in turn, and the best F1 of the others counts. The score
    is the mean.

    >>> coqa_f1([["white", "white", "cat"]], ["white"]), round(coqa_f1([["white", "white", "cat"]], ["cat"]), 4)
    (100.0, 66.6667)
    """
    _same_length(golds, predicted)
    return 100 * mean(_against_others(answers, text) for answers, text in zip(golds, predicted, strict=True))


def _against_others(golds: Sequence[str], predicted: str) -> float:
    scores = [f1_or_empty(gold, predicted) for gold in golds]
    if len(scores) == 1:
        return scores[0]
    return mean(max(scores[:out] + scores[out + 1 :]) for out in range(len(scores)))


def _same_length(golds: Sequence[object], predicted: Sequence[object]) -> None:
    if len(golds) != len(predicted) or not golds:
        raise ValueError(f"got {len(golds)} references and {len(predicted)} texts, expected equal numbers, at least 1")
