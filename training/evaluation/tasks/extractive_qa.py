"""Extractive question answering: a span of a text answers a question."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from preprocessing.tokenization import Template, TemplatedRow, Vocab, windows
from training.evaluation import metrics as measures
from training.evaluation.files import Record, Records, describe_faults
from training.evaluation.tasks.labeled_task import (
    EncodedItems,
    Outputs,
    TaskItem,
    Way,
    describe_unlabeled,
    most_frequent,
    refuse_tuning,
    texts_of,
)
from training.evaluation.tasks.split import each_row, value_of
from training.evaluation.tasks.stored_answers import ShownAnswer
from training.evaluation.tasks.verbalizer import same

if TYPE_CHECKING:
    from training.finetuning import Target, Tuning

METRICS: Final = ("f1", "exact")
COLUMNS: Final = ("question", "context", "id", "answers", "starts")
_BEST: Final = 20  # candidates for the first and for the last token
UNANSWERABLE: Final = "unanswerable"  # the generated text for no answer
_NOTHING: Final = "empty"  # the answer of the reference code if no pair of tokens is possible


class SpanPrediction(NamedTuple):
    """A predicted answer, "" for no answer (2.0), and the scores behind it."""

    text: str
    no_answer: float | None = None  # margin of no answer, in logits; None: unknown, as for generated text
    best: str = ""  # the best span, even if no answer is predicted


@spec
class ExtractiveQA:
    """Extractive question answering: SQuAD 1.1 and 2.0, XQuAD, MLQA, CMRC (BERT 4.2, 4.3).

    Long texts are read in windows, one every `doc_stride` tokens. A window without the answer is trained to predict its
    first token. A token is scored in the window with the most context around it.
    """

    kind: Literal["extractive_qa"] = "extractive_qa"
    way: ClassVar[Way] = "tuned"
    numerics: ClassVar[int] = 2
    answer_key: ClassVar[str] = ""
    squad_version: Literal[1, 2] = key(default=1, doc="Version of SQuAD; 2 has questions without an answer.")
    doc_stride: int = key(default=128, doc="Tokens between the starts of successive windows.")
    max_query_length: int = key(default=64, doc="Maximum question length in tokens.")
    max_answer_length: int = key(default=30, doc="Maximum answer length in tokens.")
    # It is used with squad_version 2 only (BERT 4.3); null is 0 if there is no dev split.
    null_score_diff_threshold: float | None = key(
        default=None, doc="Score difference above which no answer is predicted; null: the best on dev."
    )
    # ELECTRA uses 0.5.
    no_answer_loss_weight: float = key(
        default=0.0, doc="Loss weight of a no-answer head; 0: none, the first token stands for no answer."
    )
    f1_unit: Literal["words", "characters"] = key(
        default="words", doc="Unit of F1: words as in SQuAD's script, or characters as in CMRC's."
    )
    # The language selects word segmentation and articles.
    languages: Mapping[str, str] = key(
        default_factory=dict, doc="Answer language by a part of the file name (MLQA); {}: as in SQuAD's script."
    )
    metrics: tuple[str, ...] = key(
        default=("f1", "exact"), choices=METRICS, doc="Metrics to report; the first selects hyperparameters."
    )

    most_written: ClassVar[int] = 64
    renamed: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in ("doc_stride", "max_query_length", "max_answer_length"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer of at least 1")
        require(
            self.f1_unit == "words" or self.squad_version == 1, "f1_unit", self.f1_unit, "words with squad_version 2"
        )
        for language in self.languages.values():
            require(language in measures.LANGUAGES, "languages", language, " or ".join(measures.LANGUAGES))
        alone = not self.languages or (self.f1_unit, self.squad_version) == ("words", 1)
        require(alone, "languages", dict(self.languages), "{}, unless f1_unit is words and squad_version is 1")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        """Return items with the texts (question, context) and the gold (ID, answers, start characters).

        The gold is None if the file has no answers and does not mark the question as unanswerable (version 2). In
        `columns`, a split may name the columns of COLUMNS, such as `answers.text` in the Parquet files of SQuAD.
        """
        if strange := [name for name in columns if name not in COLUMNS]:
            raise BadInput(
                f"invalid columns of a split: got {', '.join(strange)}, expected {', '.join(COLUMNS)}; "
                "correct the task file"
            )
        question, context, *answer_columns = (columns.get(name, name) for name in COLUMNS)
        for place in records.places[:1]:
            self._language(place)  # fail before training if the file has no language

        def item(record: Record, place: str) -> TaskItem:
            self._language(place)
            texts = texts_of(record, place, (question, context))
            id, answers, starts = (value_of(record, name, place) for name in answer_columns)
            if answers is not None:
                answers, starts = _check_answers(texts[1], answers, starts, answer_columns, place)
            gold = None if answers is None or (self.squad_version == 1 and not answers) else (id, answers, starts)
            return TaskItem(place, texts, gold)

        return each_row(records, item)

    def _language(self, place: str) -> str:
        """The language of the answers in a file; "" if the task does not set `languages`. Raises BadInput if it is
        unknown."""
        language = next((language for part, language in self.languages.items() if part in place), "")
        if self.languages and not language:
            raise BadInput(
                f"{place}: no key of `languages` is part of this file name; "
                f"the keys are {', '.join(self.languages)}: add one"
            )
        return language

    def encode(self, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool) -> EncodedItems:
        template, encoded, lost, cut = Template(vocab), EncodedItems(), list[str](), list[int]()
        for number, item in enumerate(items):
            if training and item.gold is None:
                continue
            _, answers, starts = item.gold or ("", [], [])
            question, context = item.texts
            whole = template.row(question.lstrip(), context)
            if not (whole.text == 1).any() or (training and answers and starts[0] < 0):
                lost.append(item.place)
                continue
            given = windows(whole, length, min(self.doc_stride, length // 3), self.max_query_length)
            if (kept := _question_tokens(given[0])) < _question_tokens(whole):
                cut.append(kept)
            for window in given:
                begin, end = _ends(window, answers[0], starts[0]) if answers and starts[0] >= 0 else (0, 0)
                ends = {"start": np.asarray(begin), "stop": np.asarray(end)}
                encoded.examples.append([window.columns() | ends | {"label": np.asarray(int(not answers))}])
                encoded.item_of.append(number)
                encoded.stands_for.append(window)
        if training and not encoded.examples:
            raise BadInput("no training question has an answer; give labeled data")
        encoded.notes.extend(_describe_unused(items, lost, cut, training=training))
        return encoded

    def with_tuning(self, tuning: "Tuning") -> Self:
        refuse_tuning(self, tuning, "both_orders")
        if tuning.no_answer_loss_weight and self.squad_version == 1:
            raise BadInput(
                f"invalid tuning.no_answer_loss_weight: got {tuning.no_answer_loss_weight}, expected 0 with "
                "squad_version 1; use another grid"
            )
        return replace(self, no_answer_loss_weight=tuning.no_answer_loss_weight or self.no_answer_loss_weight)

    def targets(self) -> "tuple[Target, ...]":
        from training.finetuning import AnswerSpan, NoAnswer

        return (
            (AnswerSpan(), NoAnswer(weight=self.no_answer_loss_weight))
            if self.no_answer_loss_weight
            else (AnswerSpan(),)
        )

    def predictions(self, items: Sequence[TaskItem], encoded: EncodedItems, outputs: Outputs) -> list[SpanPrediction]:
        """The answer to each item; "" if no answer is better by more than the threshold (version 2)."""
        logits, nothing = dict[int, Any](), dict[int, float]()
        for numbers, heads in outputs:
            logits |= dict(zip(numbers, heads["answer_span"].numpy(), strict=True))
            if self.no_answer_loss_weight:
                nothing |= dict(zip(numbers, heads["no_answer"].tolist(), strict=True))
        windows_of: dict[int, list[int]] = {}
        for example, item in enumerate(encoded.item_of):
            windows_of.setdefault(item, []).append(example)
        answers = [SpanPrediction("", 0.0)] * len(items)
        for item, examples in windows_of.items():
            none = min(nothing[at] for at in examples) if self.no_answer_loss_weight else None
            given = [(encoded.stands_for[at], logits[at]) for at in examples]
            answers[item] = self._answer(items[item].texts[1], given, none)
        return answers

    def _answer(self, context: str, given: Sequence[tuple[TemplatedRow, Any]], head: float | None) -> SpanPrediction:
        """The best span of all windows; see run_squad.py of the reference code.

        `head` is the output of the no-answer head, if the model has one (finetune/qa/qa_metrics.py of
        google-research/electra).
        """
        owner = widest([window for window, _ in given])
        best, text = -np.inf, _NOTHING if self.squad_version == 1 else ""
        none = min(float(logits_S2[0].sum()) for _, logits_S2 in given)
        for number, (window, logits_S2) in enumerate(given):
            size = len(window.ids)
            first, last = (np.argsort(-logits_S2[:size, side], kind="stable")[:_BEST] for side in (0, 1))
            for begin in first.tolist():
                if window.text[begin] != 1 or owner[int(window.token[begin])] != number:
                    continue
                for end in last.tolist():
                    score = float(logits_S2[begin, 0] + logits_S2[end, 1])
                    if score > best and begin <= end < begin + self.max_answer_length and window.text[end] == 1:
                        best, text = score, context[window.start[begin] : window.stop[end]]
        difference = none - best if head is None else head
        return SpanPrediction(
            "" if self.squad_version == 2 and difference > (self.null_score_diff_threshold or 0.0) else text,
            difference,
            text,
        )

    def fit_threshold(
        self, split: str, items: Sequence[TaskItem], predictions: Sequence[SpanPrediction]
    ) -> tuple[Self, str]:
        """Return the task with the best threshold for these predictions on a labeled split, and a note.

        There are two candidates: the result of the official sweep, and a threshold that answers no question, for which
        the sweep returns 0.
        """
        if self.squad_version == 1 or self.null_score_diff_threshold is not None:
            return self, ""
        if not items:
            note = "the no-answer threshold is 0, because no dev split has labels"
            return replace(self, null_score_diff_threshold=0.0), note
        name = self.metrics[0]
        swept = self.scores(items, predictions)[f"best_{name}_thresh"]
        none = min(answer.no_answer for answer in predictions if answer.no_answer is not None) - 1
        candidates = [replace(self, null_score_diff_threshold=at) for at in (swept, none)]
        best = max(candidates, key=lambda task: task.scores(items, predictions)[name])
        return best, (
            f"the no-answer threshold is {best.null_score_diff_threshold:.4g} logits: "
            f"the best for {name} on {split}, also used for other splits"
        )

    def parts(self, item: TaskItem) -> list[tuple[str, str]]:
        return list(zip(("question", "context"), item.texts, strict=True))

    def answer_text(self, gold: tuple[str, Sequence[str], Sequence[int]]) -> str:
        """The first gold answer, or "unanswerable"."""
        _, answers, _ = gold
        return answers[0] if answers else UNANSWERABLE

    def parse_answer(self, text: str) -> SpanPrediction:
        return SpanPrediction("" if same(text, UNANSWERABLE) else text)

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[SpanPrediction]) -> dict[str, float]:
        """F1 and exact match as fractions.

        Version 2 adds these scores for answerable and unanswerable questions, the best scores that any threshold
        gives for these questions, and that threshold in logits.
        """
        known = {str(number): item for number, item in enumerate(items) if item.gold}  # merged files may share IDs
        golds = {number: item.gold[1] for number, item in known.items()}
        answers = {number: predictions[int(number)] for number in known}
        found = self._percent(golds, answers, {number: self._language(item.place) for number, item in known.items()})
        shares = {name: value if name.endswith("_thresh") else value / 100 for name, value in found.items()}
        return {name: shares[name] for name in self.metrics} | {
            name: value for name, value in shares.items() if name not in METRICS
        }

    def restore_answer(self, prediction: Any) -> SpanPrediction:
        """A prediction from its JSON values."""
        return SpanPrediction(**prediction) if isinstance(prediction, Mapping) else SpanPrediction(*prediction)

    def show_answer(self, item: TaskItem, answer: SpanPrediction) -> ShownAnswer:
        """The question and its text; an answer is correct if it is an exact match."""
        question, context = item.texts
        golds = () if item.gold is None else tuple(dict.fromkeys(item.gold[1]))
        exact = replace(self, metrics=("exact",)).scores([item], [answer])["exact"] if item.gold else None
        return ShownAnswer(
            question=f"{question}\n\n{context}",
            gold=" / ".join(golds) or ("" if item.gold is None else "no answer"),
            answer=answer.text or "no answer",
            correct=None if exact is None else exact == 1,
        )

    def restore_gold(self, question: Mapping[str, Any]) -> tuple[str, tuple[str, ...], tuple[int, ...]] | None:
        """The gold answer from the JSON values of a question."""
        gold = question["gold"]
        return None if gold is None else (question["id"], tuple(gold["answers"]), tuple(gold["starts"]))

    def majority(self, items: Sequence[TaskItem]) -> list[SpanPrediction]:
        return [SpanPrediction(text) for text in most_frequent(items, lambda gold: gold[1][:1] or [""])] * len(items)

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[SpanPrediction]) -> list[str]:
        """Notes if no question is answered (version 2), and on questions that share an ID.

        The official scripts score only one of the questions with equal IDs.
        """
        known = [answer for item, answer in zip(items, predictions, strict=False) if item.gold]
        silent = self.squad_version == 2 and known and not any(answer.text for answer in known)
        nothing = [f"all {len(known):,} questions are predicted to be unanswerable"] if silent else []
        return [*nothing, *self._of_shared_ids(items)]

    @staticmethod
    def _of_shared_ids(items: Sequence[TaskItem]) -> list[str]:
        places: dict[Any, list[str]] = {}
        for item in items:
            if item.gold:
                places.setdefault(item.gold[0], []).append(item.place)
        shared = [each for each in places.values() if len(each) > 1]
        if not shared:
            return []
        count, whole = (sum(map(len, some)) for some in (shared, places.values()))
        which = f"{shared[0][0]} and {shared[0][1]}"
        return [
            f"{count:,} of {whole:,} questions share their ID with another one ({which}): each is scored separately"
        ]

    def _percent(
        self, golds: Mapping[str, Sequence[str]], answers: Mapping[str, SpanPrediction], languages: Mapping[str, str]
    ) -> dict[str, float]:
        """The scores of the official scripts, in percent."""
        texts = {id: answer.text for id, answer in answers.items()}
        if self.languages:
            return measures.mlqa(golds, texts, languages)
        if self.squad_version == 1:
            return (measures.squad1 if self.f1_unit == "words" else measures.cmrc)(golds, texts)
        no_answer_scores = {id: answer.no_answer for id, answer in answers.items() if answer.no_answer is not None}
        if len(no_answer_scores) < len(texts):
            return measures.squad2(golds, texts)
        best = {id: answer.best for id, answer in answers.items()}
        return measures.squad2(golds, best, no_answer_scores, self.null_score_diff_threshold or 0.0)


def _check_answers(
    context: str, answers: Any, starts: Any, columns: Sequence[str], place: str
) -> tuple[list[str], list[int]]:
    """The answers that are not blank, and their starts; a start is -1 if the context has other text there.

    Raises BadInput unless both are lists of equal length, of texts and of numbers.
    """
    _, names, at = columns
    if not isinstance(answers, list) or not all(isinstance(one, str) for one in answers):
        raise BadInput(f"{place}: invalid {names}: got {answers!r}, expected a list of texts")
    if not isinstance(starts, list) or not all(isinstance(one, int) for one in starts) or len(starts) != len(answers):
        raise BadInput(f"{place}: invalid {at}: got {starts!r}, expected a list of {len(answers)} positions")
    kept = [(text, start) for text, start in zip(answers, starts, strict=True) if text.strip()]
    starts = [start if start >= 0 and context.startswith(text, start) else -1 for text, start in kept]
    return [text for text, _ in kept], starts


def _question_tokens(row: TemplatedRow) -> int:
    return int((row.text == 0).sum())


def _describe_unused(
    items: Sequence[TaskItem], lost: Sequence[str], cut: Sequence[int], *, training: bool
) -> list[str]:
    """Notes on questions that are left out or truncated; `cut` has the number of remaining tokens of each truncated
    question."""
    notes = list[str]()
    if lost:
        message = f"{len(lost):,} questions are left out: their answer is not at its position, or the text is empty"
        notes.append(f"{message} ({describe_faults(lost)})")
    notes += describe_unlabeled(items, training=training)
    if cut:
        notes.append(f"{len(cut)} of {len(items)} questions are truncated to their first {max(cut)} tokens")
    return notes


def widest(given: Sequence[TemplatedRow]) -> dict[int, int]:
    """For each token of the second text, the window in which it has the most context on both sides.

    Windows are compared by the shorter side, plus a hundredth of the size of the window; of equal ones, the first is
    used (run_squad.py).
    """
    best = dict[int, tuple[float, int]]()
    for number, window in enumerate(given):
        token_S = window.token[window.text == 1]
        for place, token in enumerate(token_S.tolist()):
            score = min(place, len(token_S) - 1 - place) + 0.01 * len(token_S)
            if token not in best or score > best[token][0]:
                best[token] = score, number
    return {token: number for token, (_, number) in best.items()}


def _ends(window: TemplatedRow, answer: str, start: int) -> tuple[int, int]:
    """The first and last token of an answer in a window; (0, 0) if the window does not contain all of it."""
    inside = np.flatnonzero((window.text == 1) & (window.stop > start) & (window.start < start + len(answer)))
    if not len(inside):
        return 0, 0
    first, last = int(inside[0]), int(inside[-1])
    whole = window.start[first] <= start and window.stop[last] >= start + len(answer.rstrip())
    return (first, last) if whole else (0, 0)
