"""Tasks with generated answers: summaries, translations, free-form answers."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Literal

from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from preprocessing.text import sentences
from training.evaluation import metrics as measures
from training.evaluation.files import Record, Records
from training.evaluation.tasks.generation_settings import GenerationSettings, TaskPrompt
from training.evaluation.tasks.labeled_task import TaskItem, Way, mean_of
from training.evaluation.tasks.split import each_row
from training.evaluation.tasks.templates import answers_of, in_two, is_template

Golds = Sequence[Sequence[str]]
Measure = Callable[[Golds, Sequence[str]], Mapping[str, float]]
"""Maps the gold answers of each question and the generated texts to a score, with other scores computed at the same
time."""


def _rouges(golds: Golds, texts: Sequence[str]) -> dict[str, float]:
    lines = ["\n".join(_lines(gold[0])) for gold in golds]
    return _as_fractions(measures.rouge(lines, ["\n".join(_lines(text)) for text in texts]))


def _lines(text: str) -> list[str]:
    """The lines of a text for ROUGE-Lsum, or its sentences if it has only one line."""
    return text.split("\n") if "\n" in text else [each.strip() for each in sentences(text)]


def _of_words(golds: Golds, texts: Sequence[str]) -> dict[str, float]:
    numbered = {str(number): gold for number, gold in enumerate(golds)}
    return _as_fractions(measures.squad1(numbered, {str(n): text for n, text in enumerate(texts)}))


def _measure_equality(golds: Golds, texts: Sequence[str]) -> float:
    """The fraction of texts that equal a gold answer, blanks around it removed; nothing is normalized."""
    return mean_of([float(text in [one.strip() for one in gold]) for gold, text in zip(golds, texts, strict=True)])


def _as_fractions(percent: Mapping[str, float]) -> dict[str, float]:
    return {name: value / 100 for name, value in percent.items()}


METRICS: Final[Mapping[str, Measure]] = {
    **dict.fromkeys(measures.ROUGES, _rouges),
    "bleu": lambda golds, texts: {"bleu": measures.bleu([gold[0] for gold in golds], texts).score / 100},
    "chrf": lambda golds, texts: {"chrf": measures.chrf([gold[0] for gold in golds], texts).score / 100},
    "coqa_f1": lambda golds, texts: {"coqa_f1": measures.coqa_f1(golds, texts) / 100},
    "exact": _of_words,
    "exact_match": lambda golds, texts: {"exact_match": _measure_equality(golds, texts)},
    "f1": _of_words,
    "words": lambda golds, texts: {"words": mean_of([float(len(text.split())) for text in texts])},
}
"""`words` is a mean count; all others are fractions."""

MOSTLY: Final = 0.5  # minimum fraction of letters that ROUGE keeps; references with less are reported
SIGNED: Final = {"bleu": measures.bleu, "chrf": measures.chrf}


@spec
class Generation:
    """Text generation: summaries (GPT-2 3.6), translations (GPT-2 3.7), answers (CoQA).

    `prompt` is a text with columns in braces, "{article}\nTL;DR:"; `answer` is another, or a column with a list of
    correct answers. A model without fine-tuning continues the prompt, after `num_fewshot` examples; a fine-tuned model
    is trained on the first answer of each item of `train`. ROUGE and BLEU compare with the first answer; F1 and exact
    match (those of SQuAD 1.1) with the best matching one.
    """

    kind: Literal["generation"] = "generation"
    prompt: str = key(doc="Prompt, a text with columns in braces.")
    answer: str = key(doc="Answer, a text with columns in braces, or a column with a list; empty: no answers.")
    generation: GenerationSettings = key(default=GenerationSettings(), doc="Prompt format, decoding and fine-tuning.")
    metrics: tuple[str, ...] = key(
        default=("rouge1", "rouge2", "rougeLsum"),
        choices=METRICS,
        doc="Metrics to report; the first selects hyperparameters.",
    )

    way: ClassVar[Way] = "written"
    numerics: ClassVar[int] = 1
    answer_key: ClassVar[str] = "answer"

    def __post_init__(self) -> None:
        for name, text in (("prompt", self.prompt), ("answer", self.answer)):
            require(is_template(text), name, text, "a text with columns in braces; {{ and }} stand for braces")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        """Return items with the texts (TaskPrompt,) and the gold answers; None if they are missing or blank."""
        prompt, answer = (columns.get(name, getattr(self, name)) for name in ("prompt", "answer"))

        def item(record: Record, place: str) -> TaskItem:
            golds = tuple(answers_of(answer, record, place)) if answer else ()
            return TaskItem(place, (TaskPrompt((), *in_two(prompt, record, place)),), golds or None)

        questions = each_row(records, item)
        self._check_letters([item for item in questions if item.gold])
        return questions

    def _check_letters(self, items: Sequence[TaskItem]) -> None:
        """Raise BadInput if ROUGE is a metric, but drops all characters of the gold answers."""
        if self._has_rouge and items and not any(measures.measure_kept_by_rouge(item.gold[0]) for item in items):
            drops = "ROUGE uses only the characters a-z and 0-9, and no gold answer has any"
            first = items[0].gold[0][:40]
            raise BadInput(f"{items[0].place}: {drops} (first: {first!r}); set metrics: [chrf]")

    @property
    def _has_rouge(self) -> bool:
        return any(name in measures.ROUGES for name in self.metrics)

    def question(self, item: TaskItem) -> TaskPrompt:
        return item.texts[0]

    def target(self, item: TaskItem) -> str:
        if not item.gold:
            raise BadInput(f"{item.place}: no answer for training; give labeled data")
        return item.gold[0]

    def predictions(self, items: Sequence[TaskItem], texts: Sequence[str]) -> list[str]:
        """The generated texts, trimmed by the generation settings."""
        return [self.generation.trim(text) for text in texts]

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[str]) -> dict[str, float]:
        golds, texts = _select_scored(items, predictions)
        values: dict[str, float] = {}
        for name in self.metrics if golds else ():
            if name not in values:
                values |= METRICS[name](golds, texts)
        return {name: values[name] for name in self.metrics if name in values}

    def majority(self, items: Sequence[TaskItem]) -> list[str]:
        return []

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[str]) -> list[str]:
        """Notes with the signatures of sacrebleu, and counts of references that ROUGE drops and of empty texts."""
        golds, texts = _select_scored(items, predictions)
        notes = [
            f"{name}: {SIGNED[name]([golds[0][0]], texts[:1]).signature}"  # independent of the texts
            for name in self.metrics
            if name in SIGNED and golds
        ]
        dropped = [
            gold[0]
            for gold in golds
            if any(map(str.isalnum, gold[0])) and measures.measure_kept_by_rouge(gold[0]) < MOSTLY
        ]
        if dropped and self._has_rouge:
            mostly = "references have mostly letters other than a-z and 0-9, which ROUGE drops; chrF uses all letters"
            notes.append(f"{len(dropped):,} of {len(golds):,} {mostly}")
        empty = sum(not text for text in predictions)
        return [*notes, f"{empty} of {len(predictions)} texts are empty"] if empty else notes


def _select_scored(items: Sequence[TaskItem], predictions: Sequence[str]) -> tuple[list[Sequence[str]], list[str]]:
    """Gold answers and generated texts of the items that have answers."""
    both = [(item.gold, text) for item, text in zip(items, predictions, strict=True) if item.gold]
    return [gold for gold, _ in both], [text for _, text in both]
