"""Multiple choice by log-likelihood: the most likely of several texts, without fine-tuning, zero-shot or few-shot."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, get_args

import numpy as np

from preprocessing import rng
from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from training.evaluation.files import Record, Records, describe_faults
from training.evaluation.likelihood import (
    NORMALISATIONS,
    FewShotExample,
    LikelihoodModel,
    LogP,
    Normalise,
    Option,
    PseudoKind,
    Request,
    Scorer,
    UnscoredRequests,
    exp_of,
    normalize,
    prompt,
    shots,
    too_few,
)
from training.evaluation.tasks.labeled_task import (
    TaskItem,
    Way,
    collect_known,
    describe_unlabeled,
    mean_of,
    never_first,
    refuse_from_one,
)
from training.evaluation.tasks.split import NO_LABEL_GIVEN, bad_rows_error, each_row, is_missing, spellings, value_of
from training.evaluation.tasks.stored_answers import ShownAnswer
from training.evaluation.tasks.templates import answers_of, fill, fill_list, is_template, text_of

_ACCURACIES: Final[Mapping[str, Normalise]] = {
    "accuracy" if how == "sum" else f"accuracy_{how}": how for how in NORMALISATIONS
}
SMOOTH_METRICS: Final = ("bits_per_byte", "margin")
"""Metrics that are always reported: they change smoothly while accuracies are still at chance."""
METRICS: Final = (
    *_ACCURACIES,
    "macro_accuracy",
    "last_word",
    "perplexity",
    "last_token",
    "last_token_perplexity",
    *SMOOTH_METRICS,
)
COLUMNS: Final = (
    "context",
    "choices",
    "choice_delimiter",
    "target_delimiter",
    "blank",
    "blank_at",
    "label",
    "subset",
    "category",
)
_OR: Final = " || "  # separates choices in the columns of a split
_NORMAL: Final = 1.959964  # standard deviations of a 95% interval
_DRAWS: Final = 2_000  # bootstrap samples


@dataclass(frozen=True)
class LikelihoodOptions:
    """The choices of an item: a context and a continuation for each."""

    contexts: tuple[str, ...]
    continuations: tuple[str, ...]  # with the delimiter
    options: tuple[str, ...]  # as in the file
    subset: str = ""
    area: str = ""

    @property
    def text(self) -> str:
        """The contexts, if there are any, and the choices in brackets."""
        contexts = [text for text in dict.fromkeys(self.contexts) if text.strip()]
        return " ".join([*contexts, f"[{' | '.join(self.options)}]"])


class LikelihoodRequests(NamedTuple):
    """The requests for items, and their indices per item."""

    requests: list[Request]
    at: list[tuple[int, ...]]  # per item: indices of its requests, one per choice
    alone_at: list[tuple[int, ...]]  # the same after the fixed context; () if unused
    prompts: list[str]  # few-shot prompt of each item


class LikelihoodChoice(NamedTuple):
    """The log-probability of each choice of an item, and, for `unconditional`, its log-probability after the fixed
    context."""

    options: tuple[LogP, ...]
    alone: tuple[LogP, ...] = ()
    left_out: str = ""  # why the item could not be scored


@spec
class LoglikelihoodChoice:
    """Choice of the most likely text: LAMBADA, BLiMP, WinoGrande, PIQA, ARC (GPT-2 3, GPT-3 2.4).

    WSC and BoolQ are further examples. `context` and `choices` are texts with columns in braces: "{passage}\nQuestion:
    {question}?\nAnswer:". A single column, "{choices}", may have a list. There may be one context for all choices, or
    one per choice and the same continuation after each (WinoGrande). With `blank`, `context` is a text in which each
    choice replaces the blank: `partial` scores the text after it (Trinh and Le 2018, arXiv:1806.02847), `full` the
    whole text.

    In `columns`, a split may replace any of the keys in COLUMNS, with " || " between choices.
    """

    kind: Literal["loglikelihood_choice"] = "loglikelihood_choice"
    way: ClassVar[Way] = "scored"
    left_to_right: ClassVar[bool] = False
    numerics: ClassVar[int] = 1
    answer_key: ClassVar[str] = "label"
    context: str = key(default="", doc="Context, a text with columns in braces.")
    choices: tuple[str, ...] = key(doc="Choices, texts with columns in braces, or one column with a list.")
    choice_delimiter: str = key(default="", doc="Delimiter between choices in one column; empty: none.")
    target_delimiter: str = key(
        default=" ", doc="Text between context and continuation; without a context, it precedes the continuation."
    )
    blank: str = key(
        default="", doc='Marker that each choice replaces in the context: "[MASK]", or a column in braces (GAP).'
    )
    blank_at: str = key(
        default="", doc="Column of the blank's first character position; empty: first occurrence of the marker."
    )
    score: Literal["partial", "full"] = key(
        default="partial", doc="Text to score after a blank is filled: the part after the blank, or all of it."
    )
    label: str = key(default="", doc="Column of the correct choice; empty: the first choice (BLiMP, LAMBADA).")
    labels: tuple[str, ...] = key(
        default=(), doc="Labels as written in the files, in the order of the choices; []: numbers from 0, or texts."
    )
    skip_labels: tuple[str, ...] = key(default=(), doc="Labels of records to leave out (GAP: neither).")
    subset: str = key(default="", doc="Subset of an item for macro_accuracy, a text with columns in braces.")
    category: str = key(default="", doc="Category of the subset (BLiMP: 12 phenomena), a text with columns in braces.")
    unconditional_context: str = key(default="", doc="Fixed context for the unconditional likelihood.")
    num_fewshot: int = key(default=0, doc="Number of examples before each question, drawn from the split train.")
    fewshot_delimiter: str = key(default="\n\n", doc="Text after each example.")
    fewshot_seed: int = key(default=0, doc="Seed for the choice of examples.")
    pll_variant: PseudoKind = key(
        default="within_word_l2r", doc="Variant of the pseudo-log-likelihood for masked models."
    )
    metrics: tuple[str, ...] = key(
        default=("accuracy",), choices=METRICS, doc="Metrics to report; the first selects hyperparameters."
    )

    def __post_init__(self) -> None:
        require(len(self.choices) >= 1, "choices", list(self.choices), "one or more texts")
        require(self.num_fewshot >= 0, "num_fewshot", self.num_fewshot, "an integer of at least 0")
        require(not self.blank_at or self.blank != "", "blank_at", self.blank_at, "empty, because blank is empty")
        has_subsets = "macro_accuracy" not in self.metrics or self.subset != ""
        require(has_subsets, "subset", self.subset, "a text with columns in braces, for macro_accuracy")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))
        given = {"context": self.context, "subset": self.subset, "category": self.category, "blank": self.blank}
        for name, text in (given | {f"choices {n}": text for n, text in enumerate(self.choices)}).items():
            require(is_template(text), name, text, "a text with columns in braces; {{ and }} stand for braces")

    def within(self, rows: int) -> Self:
        return self

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        """Return items with the texts (LikelihoodOptions,) and the index of the correct choice as gold.

        The gold is None if the split sets the label to "".
        """
        if strange := [name for name in columns if name not in COLUMNS]:
            raise BadInput(
                f"invalid columns of a split: got {', '.join(strange)}, expected {', '.join(COLUMNS)}; "
                "correct the task file"
            )
        if columns:
            questions = replace(self, **_replace_keys(columns)).items(records, {})
            is_labelled = columns.get("label", self.label) or not self.label
            return questions if is_labelled else [replace(item, gold=None) for item in questions]
        records_with_labels = each_row(records, self._with_label)
        kept = [each for each in records_with_labels if each is not None]
        questions = [item for item, _ in kept]
        questions = self._label_items(questions, [label for _, label in kept]) if self.label else questions
        records.left_out += len(records_with_labels) - len(kept)
        return questions

    def _with_label(self, record: Record, place: str) -> tuple[TaskItem, tuple[str, ...]] | None:
        """The question of a record and the spellings of its label, () without a label; None if it is left out."""
        names = self._label_of(record, place) if self.label else ()
        if any(name in self.skip_labels for name in names):
            return None
        return TaskItem(place, (self._options(record, place),), 0), names

    def _label_of(self, record: Record, place: str) -> tuple[str, ...]:
        if "{" not in self.label:
            value = value_of(record, self.label, place)
            if is_missing(value):
                return ()
            text_of(value, self.label, place)
            return tuple(name.strip() for name in spellings(value))
        return tuple(name.strip() for name in answers_of(self.label, record, place))[:1]

    def _options(self, record: Record, place: str) -> LikelihoodOptions:
        contexts = fill_list(self.context, record, place)
        texts = [text for option in self.choices for text in fill_list(option, record, place)]
        if self.choice_delimiter:
            texts = [part.strip() for text in texts for part in text.split(self.choice_delimiter)]
        parts = [fill(part, record, place) for part in (self.subset, self.category)]
        if self.blank:
            before, behind = self._around(contexts[0], record, place)
            return self._in_blank(before, behind, texts, parts)
        count = max(len(contexts), len(texts))
        if not {len(contexts), len(texts)} <= {1, count} or not count:
            raise BadInput(
                f"{place}: got {len(contexts)} contexts and {len(texts)} choices, expected equal numbers, "
                "one context or one choice"
            )
        contexts, texts = (each * count if len(each) == 1 else each for each in (contexts, texts))
        named = texts if len(set(texts)) > 1 or count == 1 else contexts
        return LikelihoodOptions(
            tuple(contexts), tuple(self.target_delimiter + each for each in texts), tuple(named), *parts
        )

    def _around(self, text: str, record: Record, place: str) -> tuple[str, str]:
        """Return the text before the blank and the text after it."""
        mark = fill(self.blank, record, place)
        start = int(text_of(value_of(record, self.blank_at, place), self.blank_at, place)) if self.blank_at else -1
        at = start if self.blank_at and text.startswith(mark, start) else text.find(mark) if not self.blank_at else -1
        if at < 0:
            where = f" at character {start}" if self.blank_at else ""
            raise BadInput(f"{place}: no blank {mark}{where} in {text[:60]!r}")
        return text[:at], text[at + len(mark) :]

    def _in_blank(self, before: str, behind: str, options: Sequence[str], parts: Sequence[str]) -> LikelihoodOptions:
        """Put each choice between the texts before and after the blank, with single spaces between words."""
        rest = behind.strip()
        gap = " " if behind[:1].isspace() and not rest.startswith("'s") else ""
        if self.score == "full":
            whole = tuple(self.target_delimiter + before + option + gap + rest for option in options)
            return LikelihoodOptions(("",) * len(options), whole, tuple(options), *parts)
        contexts = tuple(before + option for option in options)
        return LikelihoodOptions(contexts, (gap + rest,) * len(options), tuple(options), *parts)

    def _label_items(self, items: Sequence[TaskItem], labels: Sequence[tuple[str, ...]]) -> list[TaskItem]:
        """Return the items with the indices of their correct choices; `labels` has the spellings of each label.

        A missing label has the spellings () or -1. If the task has no `labels`, the labels are either all indices
        from 0, or all texts of choices. Raises BadInput if both readings are possible, and BadRows if some labels
        fit neither, or a few are texts among indices.
        """
        each = [item.texts[0].options for item in items]
        readings = [[self.labels[: len(options)] for options in each]]
        if not self.labels:
            readings = [[tuple(map(str, range(len(options)))) for options in each], each]
        golds = [[_index_of(known, names) for known, names in zip(of, labels, strict=True)] for of in readings]
        known = [
            n for n, names in enumerate(labels) if names and not (_is_kept_back(names) and not _has_reading(golds, n))
        ]
        strange = [n for n in known if not _has_reading(golds, n)]
        if strange and self.labels[:1] in ((), ("0",)):
            refuse_from_one(self.label, [(labels[n], len(each[n])) for n in known])
        fitting = [found for found in golds if all(found[n] is not None for n in known)]
        if not fitting and not strange:
            fits = sorted(([n for n in known if found[n] is not None] for found in golds), key=len)
            strange = sorted({*known} - {*fits[-1]})
            if 2 * len(fits[0]) >= len(known):  # too many to be malformed rows
                first = max(next(n for n in known if found[n] is None) for found in golds)
                message = "use numbers in all rows, or texts in all"
                raise BadInput(f"{self._strange(items[first], labels[first])}; {message}")
        if strange:
            raise bad_rows_error({n: self._strange(items[n], labels[n]) for n in strange}, len(items))
        for n in known:
            if len({found[n] for found in fitting}) > 1:
                raise BadInput(
                    f"{items[n].place}: ambiguous {self.label} {labels[n][0]!r}: "
                    "the index of one choice and the text of "
                    "another; list the labels of the choices in order, as `labels` of the task"
                )
        return [replace(item, gold=gold) for item, gold in zip(items, fitting[0], strict=True)]

    def _strange(self, item: TaskItem, names: tuple[str, ...]) -> str:
        """The message for an invalid label."""
        options = item.texts[0].options
        expected = " or ".join(self.labels or (*map(str, range(len(options))), *options))
        return f"{item.place}: invalid {self.label}: got {names[0]!r}, expected {expected}"

    def answers(
        self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel
    ) -> list[LikelihoodChoice]:
        """Score each item; items that cannot be scored are left out, with the reason."""
        why = self._too_few(items, train)
        while True:
            kept = [number for number in range(len(items)) if number not in why]
            _check_any(items, kept, why)
            asked = self.make_requests([items[number] for number in kept], train)
            try:
                results = self.score_choices(asked, lambda requests: reader.log_ps(requests, self.pll_variant))
            except UnscoredRequests as error:
                for number, *at in zip(kept, asked.at, asked.alone_at, strict=True):
                    reasons = [error.why[one] for each in at for one in each if one in error.why]
                    why |= {number: reasons[0]} if reasons else {}
            else:
                both = dict(zip(kept, results, strict=True))
                return [both[n] if n in both else LikelihoodChoice((), left_out=why[n]) for n in range(len(items))]

    def _too_few(self, items: Sequence[TaskItem], train: Sequence[TaskItem]) -> dict[int, str]:
        """Indices of items for which train has too few other examples, with messages."""
        if not self.num_fewshot or not train:
            return {}
        return too_few(self._pool(train), self.num_fewshot, [_example(item).question for item in items])

    def example(self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel) -> str:
        """The model input of the correct choice, for the first item that can be scored."""
        for item in items:
            try:
                asked = self.make_requests([item], train)
                return reader.format_request(asked.requests[asked.at[0][item.gold or 0]])
            except BadInput:  # reported in the notes
                continue
        return ""

    def notes(
        self, items: Sequence[TaskItem], answers: Sequence[LikelihoodChoice], reader: LikelihoodModel
    ) -> list[str]:
        notes = [reader.describe(self.pll_variant)]
        if left_out := [f"{i.place}: {a.left_out}" for i, a in zip(items, answers, strict=True) if a.left_out]:
            notes.append(
                f"{len(left_out):,} of {len(items):,} items are left out, and do not count in the scores: "
                f"{describe_faults(left_out)}"
            )
        by = [_DENOMINATORS[how] for name, how in _ACCURACIES.items() if name in self.metrics]
        if by:
            notes.append(f"the most likely choice by {', '.join(by)}; k equal choices count 1/k each")
        notes += [note for name, note in _OF_GOLDS.items() if name in self.metrics]
        notes.append(_BITS)
        if any(len(item.texts[0].options) > 1 for item in items):
            notes.append(f"margin: log p of the correct choice minus that of the best wrong one, {_UNITS[self._how]}")
        notes += [*self._of_labels(items), *describe_unlabeled(items, training=False)]
        if self.num_fewshot:
            notes.append(
                f"{self.num_fewshot} examples before each question, drawn from train with seed {self.fewshot_seed}"
            )
        options = [option for each in answers for option in (*each.options, *each.alone)]
        if shares := sum(option.shares_token for option in options):
            notes.append(
                f"{shares:,} of {len(options):,} continuations share a token with their context: they are scored from "
                "the last common token boundary (encoder-decoders tokenize them separately)"
            )
        if cut := _count_items(answers, "cut"):
            notes.append(f"{cut} of {len(answers)} items have a truncated context, too long for the model")
        if unknown := _count_items(answers, "unknown"):
            notes.append(
                f"{unknown} of {len(answers)} items have words or characters outside the vocabulary: "
                "all map to "
                "the unknown token, so their likelihood is too high"
            )
        return notes

    def _of_labels(self, items: Sequence[TaskItem]) -> list[str]:
        """Notes on the correct choice of tasks without a label, and on labels that may count from 1."""
        if all(len(item.texts[0].options) < 2 for item in items):
            return []
        if not self.label and not any(collect_known(items)):
            return ["the task has no `label`: the first choice of each question is the correct one"]
        return never_first(items) if self.labels[:1] in ((), ("0",)) else []

    def make_requests(self, items: Sequence[TaskItem], train: Sequence[TaskItem] = ()) -> LikelihoodRequests:
        """Return the requests for the items, with few-shot examples from `train`. Raises BadInput if there are too
        few."""
        asked = LikelihoodRequests([], [], [], [])
        if self.num_fewshot and not train:
            raise BadInput(
                f"invalid num_fewshot: got {self.num_fewshot}, expected 0 without a split named train; add the split"
            )
        pool = self._pool(train)
        for item in items:
            (options,) = item.texts
            asked.prompts.append(self._prompt(pool, item))
            asked.at.append(_append(asked.requests, _requests(asked.prompts[-1], options)))
            alone = Option.of(self.unconditional_context, options.continuations) if self._asks_alone else []
            asked.alone_at.append(_append(asked.requests, alone))
        return asked

    @staticmethod
    def _pool(train: Sequence[TaskItem]) -> list[FewShotExample]:
        """The few-shot examples to draw from."""
        return [_example(item) for item in train if item.gold is not None]

    @property
    def _asks_alone(self) -> bool:
        return "accuracy_unconditional" in self.metrics

    def _prompt(self, pool: Sequence[FewShotExample], item: TaskItem) -> str:
        try:
            return prompt(
                shots(pool, self.num_fewshot, self.fewshot_seed, _example(item).question), self.fewshot_delimiter
            )
        except ValueError as error:
            raise BadInput(f"{item.place}: {error}") from None

    def score_choices(self, asked: LikelihoodRequests, scorer: Scorer) -> list[LikelihoodChoice]:
        """Score the requests; return the log-probabilities per item."""
        results = scorer(asked.requests)
        both = zip(asked.at, asked.alone_at, strict=True)
        return [LikelihoodChoice(tuple(results[n] for n in at), tuple(results[n] for n in alone)) for at, alone in both]

    def predictions(self, items: Sequence[TaskItem], answers: Sequence[LikelihoodChoice]) -> list[dict[str, Any]]:
        """For each item, the most likely choice as in the file (of equal ones, the first), and all log-probabilities
        in nats."""
        predictions = list[dict[str, Any]]()
        for item, each in zip(items, answers, strict=True):
            if each.left_out:
                predictions.append({"left_out": each.left_out})
                continue
            values = self._values(item, each, self._how)
            one = {"answer": item.texts[0].options[int(np.argmax(values))], "nats": [o.nats for o in each.options]}
            one |= {"greedy": each.options[0].greedy} if len(values) == 1 else {}
            predictions.append(one | self._details(each))
        return predictions

    def _details(self, each: LikelihoodChoice) -> dict[str, Any]:
        """The results of an item that the metrics need besides log-probabilities, so that `restore_answer` can restore
        them."""
        details = dict[str, Any]()
        if "accuracy_token" in self.metrics:
            details["tokens"] = [option.tokens for option in each.options]
        if self._asks_alone:
            details["unconditional_nats"] = [option.nats for option in each.alone]
        if any(name.startswith("last_") for name in self.metrics) and len(each.options) > 1:
            details["greedy"] = [option.greedy for option in each.options]
        if any(name.startswith("last_token") for name in self.metrics):
            details["last_nats"] = [option.last_nats for option in each.options]
            details["last_greedy"] = [option.last_greedy for option in each.options]
        return details

    def restore_answer(self, prediction: Mapping[str, Any]) -> LikelihoodChoice:
        """The inverse of `predictions`, for the metrics of the task; counts of unknown and truncated tokens are lost.

        Raises KeyError if the prediction lacks a value that the metrics need.
        """
        if left_out := prediction.get("left_out"):
            return LikelihoodChoice((), left_out=left_out)
        nats = prediction["nats"]
        columns: dict[str, Sequence[Any]] = {}
        for name, is_needed, default in (
            ("tokens", "accuracy_token" in self.metrics, 0),
            ("greedy", "last_word" in self.metrics, False),
            ("last_nats", any(name.startswith("last_token") for name in self.metrics), 0.0),
            ("last_greedy", any(name.startswith("last_token") for name in self.metrics), False),
        ):
            stored = prediction[name] if is_needed else prediction.get(name, default)
            columns[name] = stored if isinstance(stored, list) else [stored] * len(nats)
        options = (
            LogP(each, tokens, greedy, last_nats=last_nats, last_greedy=last_greedy)
            for each, tokens, greedy, last_nats, last_greedy in zip(nats, *columns.values(), strict=True)
        )
        alone = prediction["unconditional_nats"] if self._asks_alone else ()
        return LikelihoodChoice(tuple(options), tuple(LogP(value, 0, False) for value in alone))

    def show_answer(self, item: TaskItem, answer: LikelihoodChoice) -> ShownAnswer:
        """The question with its choices; a single choice is answered correctly if all of its tokens are greedy."""
        (options,), gold = item.texts, item.gold
        is_shared = len(set(options.contexts)) == 1
        question = options.contexts[0] if is_shared else ""
        texts = (
            options.continuations
            if is_shared
            else tuple(map("".join, zip(options.contexts, options.continuations, strict=True)))
        )
        values = tuple(self._values(item, answer, self._how))
        best = int(np.argmax(values))
        if len(values) == 1:
            chosen, correct = texts[0].strip() if answer.options[0].greedy else "another text", answer.options[0].greedy
        else:
            chosen, correct = texts[best].strip(), gold is not None and _credit(values, gold) == 1
        return ShownAnswer(
            question=question,
            gold="" if gold is None else texts[gold].strip(),
            answer=chosen,
            correct=None if gold is None else correct,
            choices=tuple(text.strip() for text in texts),
            values=values,
            unit=_UNITS[self._how].removeprefix("in "),
            right=gold,
            margin=None if gold is None or len(values) < 2 else margin(values, gold),
        )

    def restore_texts(self, texts: Sequence[Any]) -> tuple[Any, ...]:
        """The texts of an item from their JSON values."""
        (values,) = texts
        lists: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return (LikelihoodOptions(**lists),)

    @property
    def _how(self) -> Normalise:
        """The normalization of the first accuracy metric."""
        return next((_ACCURACIES[name] for name in self.metrics if name in _ACCURACIES), "sum")

    def scores(self, items: Sequence[TaskItem], answers: Sequence[LikelihoodChoice]) -> dict[str, float]:
        """The metrics, with intervals, baselines and counts. Items without a label are ignored.

        Accuracies have 95% intervals over items (Wilson 1927), the fraction of ties, and the accuracies of the
        majority answer and of chance. A mean over subsets has a 95% interval by bootstrap over subsets, because
        items of a subset are not independent. Counts of items: `cut` (truncated context), `unknown` (unknown
        tokens), `shares_token` (a token shared with the context), `left_out` (not scored).
        """
        labelled = [number for number, item in enumerate(items) if item.gold is not None]
        known = [number for number in labelled if not answers[number].left_out]
        left_out = len(labelled) - len(known)
        items, answers = [items[number] for number in known], [answers[number] for number in known]
        values: dict[str, float] = {}
        for name in self.metrics:
            if name in _ACCURACIES:
                right = self._right(items, answers, _ACCURACIES[name])
                values[name] = mean_of(right)
                values[f"{name}_low"], values[f"{name}_high"] = interval(values[name], len(right))
                values[f"ties{name.removeprefix('accuracy')}"] = mean_of([float(0 < each < 1) for each in right])
        if "accuracy" in self.metrics[0]:
            values |= self._baselines(items)
        if "macro_accuracy" in self.metrics:
            right = self._right(items, answers, "sum")
            values |= self._macro(items, right) | (self._areas(items, right) if self.category else {})
        values |= self._smooth_metrics(items, answers)
        golds = [each.options[item.gold] for item, each in zip(items, answers, strict=True)]
        named = {name: value for name, value in _of_golds(golds).items() if name in self.metrics}
        counts = {name: float(_count_items(answers, name)) for name in _COUNTED} | {"left_out": float(left_out)}
        return values | named | {name: count for name, count in counts.items() if count}

    def _smooth_metrics(self, items: Sequence[TaskItem], answers: Sequence[LikelihoodChoice]) -> dict[str, float]:
        """The mean bits per byte of the correct choice, and the mean margin; the latter only with several choices.

        Bits per byte is the task loss of model ladders (Bhagia et al. 2024, arXiv:2412.04403). The margin is that of
        DataDecide (Magnusson et al. 2025, arXiv:2504.11393) in log-probabilities, normalized like the first
        accuracy of the task: it is positive exactly if the correct choice is the only best one. Means are over items,
        or over subsets if the first metric is macro_accuracy.
        """
        bits = [bits_per_byte(item, each) for item, each in zip(items, answers, strict=True)]
        several = [pair for pair in zip(items, answers, strict=True) if len(pair[1].options) > 1]
        margins = [margin(self._values(item, each, self._how), item.gold) for item, each in several]
        means = {"bits_per_byte": self._mean(items, bits)}
        return means | ({"margin": self._mean([item for item, _ in several], margins)} if several else {})

    def _right(self, items: Sequence[TaskItem], chosen: Sequence[LikelihoodChoice], how: Normalise) -> list[float]:
        """For each item, 1 if the correct choice is the most likely, 1/k if it is one of k equally likely choices,
        else 0."""
        values = [self._values(item, each, how) for item, each in zip(items, chosen, strict=True)]
        return [_credit(each, item.gold) for item, each in zip(items, values, strict=True)]

    @staticmethod
    def _values(item: TaskItem, chosen: LikelihoodChoice, how: Normalise) -> list[float]:
        """The normalized log-probability of each choice."""
        texts = item.texts[0].continuations
        alone = chosen.alone or (None,) * len(texts)
        return [normalize(*each) for each in zip(chosen.options, (how,) * len(texts), texts, alone, strict=True)]

    def _baselines(self, items: Sequence[TaskItem]) -> dict[str, float]:
        """The first metric for random guessing and, with labels, for always predicting the most frequent label."""
        baselines = {"chance": self._mean(items, [1 / len(item.texts[0].options) for item in items])}
        if self.label and items:
            most = int(np.bincount([item.gold for item in items]).argmax())
            baselines["majority"] = self._mean(items, [float(item.gold == most) for item in items])
        return baselines

    def _mean(self, items: Sequence[TaskItem], right: Sequence[float]) -> float:
        """The mean over items, or over subsets if the first metric is macro_accuracy."""
        if self.metrics[0] != "macro_accuracy":
            return mean_of(right)
        return mean_of(list(_accuracies([item.texts[0].subset for item in items], right).values()))

    def _macro(self, items: Sequence[TaskItem], right: Sequence[float]) -> dict[str, float]:
        """The mean accuracy over subsets, its interval, and the accuracy of each subset."""
        parts = _accuracies([item.texts[0].subset for item in items], right)
        value_N = np.array(list(parts.values()))
        draws = rng.key(self.fewshot_seed, "task").at(1, 0).integers(len(value_N), size=(_DRAWS, len(value_N)))
        low, high = np.percentile(value_N[draws].mean(1), [2.5, 97.5])
        named = {f"accuracy_of_{name}": value for name, value in parts.items()}
        return {"macro_accuracy": float(value_N.mean()), "macro_low": float(low), "macro_high": float(high)} | named

    @staticmethod
    def _areas(items: Sequence[TaskItem], right: Sequence[float]) -> dict[str, float]:
        """The mean accuracy over categories, and the accuracy of each category over all its items."""
        parts = _accuracies([item.texts[0].area for item in items], right)
        return {"accuracy_by_area": mean_of(list(parts.values()))} | {f"accuracy_in_{k}": v for k, v in parts.items()}


def _accuracies(parts: Sequence[str], right: Sequence[float]) -> dict[str, float]:
    """The mean over the items of each part, in order of appearance."""
    values: dict[str, list[float]] = {}
    for part, each in zip(parts, right, strict=True):
        values.setdefault(part, []).append(each)
    return {part: mean_of(each) for part, each in values.items()}


_DENOMINATORS: Final[Mapping[Normalise, str]] = {
    "sum": "the sum over its tokens",
    "token": "the mean over its tokens",
    "character": "the sum per character",
    "byte": "the sum per byte",
    "unconditional": "the sum minus that after the fixed context",
}


def interval(share: float, count: int) -> tuple[float, float]:
    """The 95% score interval of a binomial fraction (Wilson 1927).

    >>> [round(each, 4) for each in interval(0.5, 100)]
    [0.4038, 0.5962]
    """
    if not count:
        return 0.0, 1.0
    z = _NORMAL**2 / count
    middle, half = share + z / 2, math.sqrt(z * share * (1 - share) + z * z / 4)
    return (middle - half) / (1 + z), (middle + half) / (1 + z)


_OF_GOLDS: Final[Mapping[str, str]] = {
    "last_word": "last_word: fraction of items where each token of the correct choice has the highest score",
    "perplexity": "perplexity: exp of the mean of -log p of the correct choice, over items",
    "last_token": "last_token, last_token_perplexity: of the last token of the correct choice only",
}


def _of_golds(golds: Sequence[LogP]) -> dict[str, float]:
    """The metrics of the correct choices only: greedy matches and perplexities."""
    return {
        "last_word": mean_of([float(each.greedy) for each in golds]),
        "perplexity": exp_of(-mean_of([each.nats for each in golds])),
        "last_token": mean_of([float(each.last_greedy) for each in golds]),
        "last_token_perplexity": exp_of(-mean_of([each.last_nats for each in golds])),
    }


_Counted = Literal["cut", "unknown", "shares_token"]
_COUNTED: Final[tuple[_Counted, ...]] = get_args(_Counted)
COUNTS: Final = (*_COUNTED, "left_out")  # keys of scores that are counts of items


def _count_items(answers: Sequence[LikelihoodChoice], what: _Counted) -> int:
    """The number of items with a truncated context, unknown tokens, or tokens shared with the context."""
    return sum(any(getattr(option, what) for option in each.options) for each in answers)


def _replace_keys(columns: Mapping[str, str]) -> dict[str, Any]:
    """The keys of the task that a split replaces."""
    return {name: tuple(text.split(_OR)) if name == "choices" else text for name, text in columns.items()}


_BITS: Final = "bits_per_byte: -log2 p of the correct choice per byte of its text, without its leading blank"
_UNITS: Final[Mapping[Normalise, str]] = {
    "sum": "in nats",
    "token": "in nats per token",
    "character": "in nats per character",
    "byte": "in nats per byte",
    "unconditional": "in nats, each minus that after the fixed context",
}


def bits_per_byte(item: TaskItem, answer: LikelihoodChoice) -> float:
    """-log2 p of the correct choice, divided by the bytes of its text without blanks around it.

    >>> item = TaskItem("", (LikelihoodOptions(("a",) * 2, (" cat", " dog"), ("cat", "dog")),), 0)
    >>> bits_per_byte(item, LikelihoodChoice((LogP(-6 * math.log(2), 1, False), LogP(-1.0, 1, False))))
    2.0
    """
    size = len(item.texts[0].continuations[item.gold].strip().encode())
    return -answer.options[item.gold].nats / max(1, size) / math.log(2)


def margin(values: Sequence[float], gold: int) -> float:
    """The value of the correct choice minus that of the best wrong one.

    >>> margin([-1.0, -3.0, -2.5], 0), margin([-1.0, -3.0, -2.5], 1)
    (1.5, -2.0)
    """
    return values[gold] - max(value for number, value in enumerate(values) if number != gold)


def _credit(values: Sequence[float], gold: int) -> float:
    """The credit of the correct choice: 1 if it is the most likely, 1/k if k choices are.

    >>> _credit([-1.0, -2.0], 0), _credit([-1.0, -1.0], 0), _credit([-1.0, -2.0], 1)
    (1.0, 0.5, 0.0)
    """
    best = max(values)
    return 1 / values.count(best) if values[gold] == best else 0.0


def _example(item: TaskItem) -> FewShotExample:
    """An item with its correct choice as a few-shot example; the first choice if the correct one is unknown."""
    (options,), right = item.texts, item.gold or 0
    return FewShotExample(options.contexts[right], options.continuations[right])


def _index_of(known: Sequence[str], names: Sequence[str]) -> int | None:
    """The index of the first of the names among the known ones, or None."""
    return next((known.index(name) for name in names if name in known), None)


def _has_reading(golds: Sequence[Sequence[int | None]], number: int) -> bool:
    return any(found[number] is not None for found in golds)


def _is_kept_back(names: Sequence[str]) -> bool:
    """Whether an unknown label is the placeholder of a missing label."""
    return NO_LABEL_GIVEN in names


def _requests(prompt: str, options: LikelihoodOptions) -> list[Request]:
    """One request per choice; choices with the same context are compared."""
    requests: dict[int, Request] = {}
    for context in dict.fromkeys(options.contexts):
        at = [number for number, one in enumerate(options.contexts) if one == context]
        requests |= dict(zip(at, Option.of(prompt + context, [options.continuations[n] for n in at]), strict=True))
    return [requests[number] for number in range(len(options.contexts))]


def _check_any(items: Sequence[TaskItem], kept: Sequence[int], why: Mapping[int, str]) -> None:
    """Raise BadInput if no item can be scored, or none with a label."""
    was, still = (any(items[n].gold is not None for n in numbers) for numbers in (range(len(items)), kept))
    if why and (not kept or (was and not still)):
        first = next(number for number in why if not was or items[number].gold is not None)
        more = f"; {len(why) - 1:,} more items cannot be scored either" if len(why) > 1 else ""
        raise BadInput(f"{items[first].place}: {why[first]}{more}")


def _append(requests: list[Request], more: Sequence[Request]) -> tuple[int, ...]:
    """Append requests; return their indices."""
    requests += more
    return tuple(range(len(requests) - len(more), len(requests)))
