"""Which of several texts does a net find likeliest? Nothing is fine-tuned; examples may stand before a question."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, get_args

import numpy as np

from preprocessing import rng
from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from training.files import Record, Records, describe_faults
from training.likelihood import (
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
from training.tasks.labeled_task import (
    TaskItem,
    Way,
    describe_unlabeled,
    known_of,
    mean_of,
    never_first,
    refuse_from_one,
)
from training.tasks.split import NO_LABEL_GIVEN, bad_rows_error, each_row, is_missing, spellings, value_of
from training.tasks.templates import answers_of, fill, is_template, listed, text_of

_ACCURACIES: Final[Mapping[str, Normalise]] = {
    "accuracy" if how == "sum" else f"accuracy_{how}": how for how in NORMALISATIONS
}
METRICS: Final = (
    *_ACCURACIES,
    "macro_accuracy",
    "last_word",
    "perplexity",
    "last_token",
    "last_token_perplexity",
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
_OR: Final = " || "  # between options that a split has in place of those of the task
_NORMAL: Final = 1.959964  # deviations on either side of an interval of 95 %
_DRAWS: Final = 2_000  # of the bootstrap


@dataclass(frozen=True)
class LikelihoodOptions:
    """The options of an item: for each a context and what may stand behind it."""

    contexts: tuple[str, ...]
    continuations: tuple[str, ...]  # with what stands between
    options: tuple[str, ...]  # as the file has them
    subset: str = ""
    area: str = ""


class LikelihoodRequests(NamedTuple):
    """What is asked about items, and which of it is about which item."""

    requests: list[Request]
    at: list[tuple[int, ...]]  # for each item the numbers of its requests, one an option
    alone_at: list[tuple[int, ...]]  # the same behind the fixed context; () where that is not asked
    prompts: list[str]  # what stands before each item


class LikelihoodChoice(NamedTuple):
    """What the net says about an item: the log-probability of each option, and for `unconditional` that of it alone."""

    options: tuple[LogP, ...]
    alone: tuple[LogP, ...] = ()
    left_out: str = ""  # why it says nothing


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
        default=" ", doc="Text between context and continuation; before the latter if there is no context."
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
    subset: str = key(default="", doc="Subset of the score for an item, a text with columns in braces.")
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
        require(self.num_fewshot >= 0, "num_fewshot", self.num_fewshot, "a whole number from 0 up")
        require(not self.blank_at or self.blank != "", "blank_at", self.blank_at, "empty where there is no blank")
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
        """Items with the texts (Options,) and the number of the right option as gold; none where a split has "" for the
        label of the task."""
        if strange := [name for name in columns if name not in COLUMNS]:
            raise BadInput(f"columns of a split has {', '.join(strange)}, allowed is {', '.join(COLUMNS)}")
        if columns:
            found = replace(self, **_named(columns)).items(records, {})
            is_labelled = columns.get("label", self.label) or not self.label
            return found if is_labelled else [replace(item, gold=None) for item in found]
        made = each_row(records, self._with_label)
        kept = [each for each in made if each is not None]
        found = [item for item, _ in kept]
        found = self._labelled(found, [label for _, label in kept]) if self.label else found
        records.left_out += len(made) - len(kept)
        return found

    def _with_label(self, record: Record, place: str) -> tuple[TaskItem, tuple[str, ...]] | None:
        """The question of a record, and how its label may be written, () where it has none; None: it is left out."""
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
        contexts = listed(self.context, record, place)
        given = [text for option in self.choices for text in listed(option, record, place)]
        if self.choice_delimiter:
            given = [part.strip() for text in given for part in text.split(self.choice_delimiter)]
        parts = [fill(part, record, place) for part in (self.subset, self.category)]
        if self.blank:
            before, behind = self._around(contexts[0], record, place)
            return self._in_blank(before, behind, given, parts)
        count = max(len(contexts), len(given))
        if not {len(contexts), len(given)} <= {1, count} or not count:
            raise BadInput(
                f"{place}: has {len(contexts)} contexts and {len(given)} options; give one of either, or equal"
            )
        contexts, given = (each * count if len(each) == 1 else each for each in (contexts, given))
        named = given if len(set(given)) > 1 or count == 1 else contexts
        return LikelihoodOptions(
            tuple(contexts), tuple(self.target_delimiter + each for each in given), tuple(named), *parts
        )

    def _around(self, text: str, record: Record, place: str) -> tuple[str, str]:
        """What stands before the blank and behind it."""
        mark = fill(self.blank, record, place)
        start = int(text_of(value_of(record, self.blank_at, place), self.blank_at, place)) if self.blank_at else -1
        at = start if self.blank_at and text.startswith(mark, start) else text.find(mark) if not self.blank_at else -1
        if at < 0:
            where = f" at character {start}" if self.blank_at else ""
            raise BadInput(f"{place}: has no {mark}{where} in {text[:60]!r}")
        return text[:at], text[at + len(mark) :]

    def _in_blank(self, before: str, behind: str, options: Sequence[str], parts: Sequence[str]) -> LikelihoodOptions:
        """Each option between what stands before the blank and behind it; of several spaces between words one stays."""
        rest = behind.strip()
        gap = " " if behind[:1].isspace() and not rest.startswith("'s") else ""
        if self.score == "full":
            whole = tuple(self.target_delimiter + before + option + gap + rest for option in options)
            return LikelihoodOptions(("",) * len(options), whole, tuple(options), *parts)
        contexts = tuple(before + option for option in options)
        return LikelihoodOptions(contexts, (gap + rest,) * len(options), tuple(options), *parts)

    def _labelled(self, items: Sequence[TaskItem], labels: Sequence[tuple[str, ...]]) -> list[TaskItem]:
        """The items with the numbers of their right options; `labels` are the ways in which that of each may be
        written, () and -1 where there is none. Where no labels are named, those of all items are numbers from 0, or
        those of all are texts of options; BadInput where they could be either, BadRows where some are neither, or a
        few are texts among numbers."""
        each = [item.texts[0].options for item in items]
        readings = [[self.labels[: len(options)] for options in each]]
        if not self.labels:
            readings = [[tuple(map(str, range(len(options)))) for options in each], each]
        golds = [[_number_of(known, names) for known, names in zip(of, labels, strict=True)] for of in readings]
        known = [n for n, names in enumerate(labels) if names and not (_is_kept_back(names) and not _any(golds, n))]
        strange = [n for n in known if not _any(golds, n)]
        if strange and self.labels[:1] in ((), ("0",)):
            refuse_from_one(self.label, [(labels[n], len(each[n])) for n in known])
        fitting = [found for found in golds if all(found[n] is not None for n in known)]
        if not fitting and not strange:
            fits = sorted(([n for n in known if found[n] is not None] for found in golds), key=len)
            strange = sorted({*known} - {*fits[-1]})
            if 2 * len(fits[0]) >= len(known):  # hardly some rows that are wrong
                first = max(next(n for n in known if found[n] is None) for found in golds)
                said = "numbers in all rows, or texts in all"
                raise BadInput(f"{self._strange(items[first], labels[first])} ({said})")
        if strange:
            raise bad_rows_error({n: self._strange(items[n], labels[n]) for n in strange}, len(items))
        for n in known:
            if len({found[n] for found in fitting}) > 1:
                raise BadInput(
                    f"{items[n].place}: {self.label} is {labels[n][0]!r}, the number of one option and the text of "
                    "another; give the labels of the options in their order, as labels of the task"
                )
        return [replace(item, gold=gold) for item, gold in zip(items, fitting[0], strict=True)]

    def _strange(self, item: TaskItem, names: tuple[str, ...]) -> str:
        """That a label is none of those that are allowed."""
        options = item.texts[0].options
        wanted = " or ".join(self.labels or (*map(str, range(len(options))), *options))
        return f"{item.place}: {self.label} is {names[0]!r}, allowed is {wanted}"

    def answers(
        self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel
    ) -> list[LikelihoodChoice]:
        """What the net says about each item; those that cannot be asked or scored are left out, and say why."""
        why = self._too_few(items, train)
        while True:
            kept = [number for number in range(len(items)) if number not in why]
            _check_any(items, kept, why)
            asked = self.asked([items[number] for number in kept], train)
            try:
                found = self.chosen(asked, lambda requests: reader.log_ps(requests, self.pll_variant))
            except UnscoredRequests as error:
                for number, *at in zip(kept, asked.at, asked.alone_at, strict=True):
                    reasons = [error.why[one] for each in at for one in each if one in error.why]
                    why |= {number: reasons[0]} if reasons else {}
            else:
                both = dict(zip(kept, found, strict=True))
                return [both[n] if n in both else LikelihoodChoice((), left_out=why[n]) for n in range(len(items))]

    def _too_few(self, items: Sequence[TaskItem], train: Sequence[TaskItem]) -> dict[int, str]:
        """Numbers of the items for which train has too few examples, as it has the item itself, and how few."""
        if not self.num_fewshot or not train:
            return {}
        return too_few(self._pool(train), self.num_fewshot, [_example(item).question for item in items])

    def example(self, items: Sequence[TaskItem], train: Sequence[TaskItem], reader: LikelihoodModel) -> str:
        """The right option of the first item that can be asked, behind its prompt."""
        for item in items:
            try:
                asked = self.asked([item], train)
                return reader.shown(asked.requests[asked.at[0][item.gold or 0]])
            except BadInput:  # which the notes say
                continue
        return ""

    def notes(
        self, items: Sequence[TaskItem], answers: Sequence[LikelihoodChoice], reader: LikelihoodModel
    ) -> list[str]:
        found = [reader.describe(self.pll_variant)]
        if left_out := [f"{i.place}: {a.left_out}" for i, a in zip(items, answers, strict=True) if a.left_out]:
            found.append(
                f"{len(left_out):,} of {len(items):,} items are left out, and count in no score: "
                f"{describe_faults(left_out)}"
            )
        by = [_DENOMINATORS[how] for name, how in _ACCURACIES.items() if name in self.metrics]
        if by:
            found.append(f"the likeliest option by {', '.join(by)}; of k that are equal, each counts 1/k")
        found += [said for name, said in _OF_GOLDS.items() if name in self.metrics]
        found += [*self._of_labels(items), *describe_unlabeled(items, training=False)]
        if self.num_fewshot:
            found.append(
                f"{self.num_fewshot} examples before each question, drawn from train by seed {self.fewshot_seed}"
            )
        options = [option for each in answers for option in (*each.options, *each.alone)]
        if shares := sum(option.shares_token for option in options):
            found.append(
                f"{shares:,} of {len(options):,} requests share a token with their context: they are scored from the "
                "last place at which a token ends in both, or behind a source with the tokens that they have alone"
            )
        if cut := _having(answers, "cut"):
            found.append(f"{cut} of {len(answers)} items lost the beginning of their context: it did not fit the net")
        if unknown := _having(answers, "unknown"):
            found.append(
                f"{unknown} of {len(answers)} items have words or characters that the vocabulary does not know: to the "
                "net they are all alike, and likelier than they should be"
            )
        return found

    def _of_labels(self, items: Sequence[TaskItem]) -> list[str]:
        """Which option is right where no label says so, and whether labels may count from 1."""
        if all(len(item.texts[0].options) < 2 for item in items):
            return []
        if not self.label and not any(known_of(items)):
            return ["the task has no `label`: the first option of each question is the right one"]
        return never_first(items) if self.labels[:1] in ((), ("0",)) else []

    def asked(self, items: Sequence[TaskItem], train: Sequence[TaskItem] = ()) -> LikelihoodRequests:
        """What a net is asked, with examples from `train` before each question. BadInput where these are too few."""
        asked = LikelihoodRequests([], [], [], [])
        if self.num_fewshot and not train:
            raise BadInput(f"num_fewshot is {self.num_fewshot}, and there is no split train to draw examples from")
        pool = self._pool(train)
        for item in items:
            (options,) = item.texts
            asked.prompts.append(self._prompt(pool, item))
            asked.at.append(_added(asked.requests, _requests(asked.prompts[-1], options)))
            alone = Option.of(self.unconditional_context, options.continuations) if self._asks_alone else []
            asked.alone_at.append(_added(asked.requests, alone))
        return asked

    @staticmethod
    def _pool(train: Sequence[TaskItem]) -> list[FewShotExample]:
        """What examples are drawn from."""
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

    def chosen(self, asked: LikelihoodRequests, scorer: Scorer) -> list[LikelihoodChoice]:
        """What a net says about each item."""
        found = scorer(asked.requests)
        both = zip(asked.at, asked.alone_at, strict=True)
        return [LikelihoodChoice(tuple(found[n] for n in at), tuple(found[n] for n in alone)) for at, alone in both]

    def predictions(self, items: Sequence[TaskItem], answers: Sequence[LikelihoodChoice]) -> list[dict[str, Any]]:
        """For each item the likeliest option, as the file has it, of equal ones the first; and what all got (nats)."""
        found = list[dict[str, Any]]()
        for item, each in zip(items, answers, strict=True):
            if each.left_out:
                found.append({"left_out": each.left_out})
                continue
            values = self._values(item, each, self._how)
            one = {"answer": item.texts[0].options[int(np.argmax(values))], "nats": [o.nats for o in each.options]}
            found.append(one if len(values) > 1 else one | {"greedy": each.options[0].greedy})
        return found

    @property
    def _how(self) -> Normalise:
        """The normalisation of the first accuracy."""
        return next((_ACCURACIES[name] for name in self.metrics if name in _ACCURACIES), "sum")

    def scores(self, items: Sequence[TaskItem], answers: Sequence[LikelihoodChoice]) -> dict[str, float]:
        """Each of the metrics. Beside accuracies their intervals of 95 % over items (Wilson 1927), the share of ties,
        the majority's and chance's accuracy; beside the mean over subsets its interval of 95 %, bootstrapped over
        these: items of one are not independent. `cut`: items that lost a part of their context; `unknown`: those with
        words that the vocabulary does not know; `shares_token`: those of which a token is also of the context;
        `left_out`: those that cannot be scored. Items without a label count in none."""
        labelled = [number for number, item in enumerate(items) if item.gold is not None]
        known = [number for number in labelled if not answers[number].left_out]
        left_out = len(labelled) - len(known)
        items, answers = [items[number] for number in known], [answers[number] for number in known]
        found: dict[str, float] = {}
        for name in self.metrics:
            if name in _ACCURACIES:
                right = self._right(items, answers, _ACCURACIES[name])
                found[name] = mean_of(right)
                found[f"{name}_low"], found[f"{name}_high"] = interval(found[name], len(right))
                found[f"ties{name.removeprefix('accuracy')}"] = mean_of([float(0 < each < 1) for each in right])
        if "accuracy" in self.metrics[0]:
            found |= self._baselines(items)
        if "macro_accuracy" in self.metrics:
            right = self._right(items, answers, "sum")
            found |= self._macro(items, right) | (self._areas(items, right) if self.category else {})
        golds = [each.options[item.gold] for item, each in zip(items, answers, strict=True)]
        named = {name: value for name, value in _of_golds(golds).items() if name in self.metrics}
        counts = {name: float(_having(answers, name)) for name in _COUNTED} | {"left_out": float(left_out)}
        return found | named | {name: count for name, count in counts.items() if count}

    def _right(self, items: Sequence[TaskItem], chosen: Sequence[LikelihoodChoice], how: Normalise) -> list[float]:
        """For each item 1 where the right option is the likeliest, and its share where several are: of two, 1/2."""
        values = [self._values(item, each, how) for item, each in zip(items, chosen, strict=True)]
        return [_share(each, item.gold) for item, each in zip(items, values, strict=True)]

    @staticmethod
    def _values(item: TaskItem, chosen: LikelihoodChoice, how: Normalise) -> list[float]:
        """The normalised log-probability of each option."""
        texts = item.texts[0].continuations
        alone = chosen.alone or (None,) * len(texts)
        return [normalize(*each) for each in zip(chosen.options, (how,) * len(texts), texts, alone, strict=True)]

    def _baselines(self, items: Sequence[TaskItem]) -> dict[str, float]:
        """What chance and, where labels say which option is right, the most frequent of them would be right at, by the
        first metric: an accuracy, or the mean of those of the subsets."""
        found = {"chance": self._mean(items, [1 / len(item.texts[0].options) for item in items])}
        if self.label and items:
            most = int(np.bincount([item.gold for item in items]).argmax())
            found["majority"] = self._mean(items, [float(item.gold == most) for item in items])
        return found

    def _mean(self, items: Sequence[TaskItem], right: Sequence[float]) -> float:
        """The mean over items, or over their subsets where the first metric is one."""
        if self.metrics[0] != "macro_accuracy":
            return mean_of(right)
        return mean_of(list(_accuracies([item.texts[0].subset for item in items], right).values()))

    def _macro(self, items: Sequence[TaskItem], right: Sequence[float]) -> dict[str, float]:
        """The mean of the accuracies of the subsets, its interval, and each of them."""
        parts = _accuracies([item.texts[0].subset for item in items], right)
        value_N = np.array(list(parts.values()))
        draws = rng.key(self.fewshot_seed, "task").at(1, 0).integers(len(value_N), size=(_DRAWS, len(value_N)))
        low, high = np.percentile(value_N[draws].mean(1), [2.5, 97.5])
        named = {f"accuracy_of_{name}": value for name, value in parts.items()}
        return {"macro_accuracy": float(value_N.mean()), "macro_low": float(low), "macro_high": float(high)} | named

    @staticmethod
    def _areas(items: Sequence[TaskItem], right: Sequence[float]) -> dict[str, float]:
        """The mean of the accuracies of the areas, and each of them, over all of its items."""
        parts = _accuracies([item.texts[0].area for item in items], right)
        return {"accuracy_by_area": mean_of(list(parts.values()))} | {f"accuracy_in_{k}": v for k, v in parts.items()}


def _accuracies(parts: Sequence[str], right: Sequence[float]) -> dict[str, float]:
    """By part, in the order in which they come, the mean over its items."""
    found: dict[str, list[float]] = {}
    for part, each in zip(parts, right, strict=True):
        found.setdefault(part, []).append(each)
    return {part: mean_of(each) for part, each in found.items()}


_DENOMINATORS: Final[Mapping[Normalise, str]] = {
    "sum": "the sum over its tokens",
    "token": "the mean over its tokens",
    "character": "the sum per character",
    "byte": "the sum per byte",
    "unconditional": "the sum less that behind the fixed context",
}


def interval(share: float, count: int) -> tuple[float, float]:
    """Where the share of a binomial lies at 95 %, by its score (Wilson 1927).

    >>> [round(each, 4) for each in interval(0.5, 100)]
    [0.4038, 0.5962]
    """
    if not count:
        return 0.0, 1.0
    z = _NORMAL**2 / count
    middle, half = share + z / 2, math.sqrt(z * share * (1 - share) + z * z / 4)
    return (middle - half) / (1 + z), (middle + half) / (1 + z)


_OF_GOLDS: Final[Mapping[str, str]] = {
    "last_word": "last_word: all tokens of the right option have the highest score, equal ones too, given those before",
    "perplexity": "perplexity: exp of the mean over items of -log p of the right option, all its tokens together",
    "last_token": "last_token, last_token_perplexity: of the last token of the right option alone",
}


def _of_golds(golds: Sequence[LogP]) -> dict[str, float]:
    """What is measured of right options alone: whether all of their tokens, or the last, are the likeliest."""
    return {
        "last_word": mean_of([float(each.greedy) for each in golds]),
        "perplexity": exp_of(-mean_of([each.nats for each in golds])),
        "last_token": mean_of([float(each.last_greedy) for each in golds]),
        "last_token_perplexity": exp_of(-mean_of([each.last_nats for each in golds])),
    }


_Counted = Literal["cut", "unknown", "shares_token"]
_COUNTED: Final[tuple[_Counted, ...]] = get_args(_Counted)
COUNTS: Final = (*_COUNTED, "left_out")  # what scores have of a split beside shares, where there are some: items


def _having(answers: Sequence[LikelihoodChoice], what: _Counted) -> int:
    """Items of which a net did not read all, or read tokens that the vocabulary does not have or the context shares."""
    return sum(any(getattr(option, what) for option in each.options) for each in answers)


def _named(columns: Mapping[str, str]) -> dict[str, Any]:
    """Keys of the task that a split has in their place."""
    return {name: tuple(text.split(_OR)) if name == "choices" else text for name, text in columns.items()}


def _share(values: Sequence[float], gold: int) -> float:
    """What the right option gets of one point, which the likeliest ones share.

    >>> _share([-1.0, -2.0], 0), _share([-1.0, -1.0], 0), _share([-1.0, -2.0], 1)
    (1.0, 0.5, 0.0)
    """
    best = max(values)
    return 1 / values.count(best) if values[gold] == best else 0.0


def _example(item: TaskItem) -> FewShotExample:
    """An item with its right option, as it stands in a prompt; the first where that is not known."""
    (options,), right = item.texts, item.gold or 0
    return FewShotExample(options.contexts[right], options.continuations[right])


def _number_of(known: Sequence[str], names: Sequence[str]) -> int | None:
    """The number of the first of these names among the known ones; None where none is there."""
    return next((known.index(name) for name in names if name in known), None)


def _any(golds: Sequence[Sequence[int | None]], number: int) -> bool:
    return any(found[number] is not None for found in golds)


def _is_kept_back(names: Sequence[str]) -> bool:
    """Whether a label that is none of those that are known stands for one that is not given."""
    return NO_LABEL_GIVEN in names


def _requests(prompt: str, options: LikelihoodOptions) -> list[Request]:
    """One for each option, of which those with the same context are compared with each other."""
    found: dict[int, Request] = {}
    for context in dict.fromkeys(options.contexts):
        at = [number for number, one in enumerate(options.contexts) if one == context]
        found |= dict(zip(at, Option.of(prompt + context, [options.continuations[n] for n in at]), strict=True))
    return [found[number] for number in range(len(options.contexts))]


def _check_any(items: Sequence[TaskItem], kept: Sequence[int], why: Mapping[int, str]) -> None:
    """BadInput where no item is left to score, or none of those with a label."""
    was, still = (any(items[n].gold is not None for n in numbers) for numbers in (range(len(items)), kept))
    if why and (not kept or (was and not still)):
        first = next(number for number in why if not was or items[number].gold is not None)
        more = f"; {len(why) - 1:,} more items cannot be scored either" if len(why) > 1 else ""
        raise BadInput(f"{items[first].place}: {why[first]}{more}")


def _added(requests: list[Request], more: Sequence[Request]) -> tuple[int, ...]:
    """Add requests, and give their numbers."""
    requests += more
    return tuple(range(len(requests) - len(more), len(requests)))
