"""Token classification: a tag for each word of a sentence."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE
from preprocessing.spec import key, require, spec
from preprocessing.tokenization import SPECIAL, Template, Vocab
from training.evaluation import metrics as measures
from training.evaluation.files import Record, Records
from training.evaluation.metrics import OUTSIDE, PREFIXES, Scheme
from training.evaluation.tasks.labeled_task import (
    NO_LABEL,
    EncodedItems,
    Outputs,
    TaskItem,
    Way,
    collect_known,
    mean_of,
    most_frequent,
    one_answer,
    refuse_tuning,
    select_answered,
    zero,
)
from training.evaluation.tasks.split import each_row, is_missing, value_of

if TYPE_CHECKING:
    from training.finetuning import Target, Tuning

_NO_TAGS: Final = ("_", "-", "?", "-1")  # placeholders of tags that are not published
OF_ENTITIES: Final = ("f1", "precision", "recall")
MOST_NAMED: Final = 5  # maximum labels in a message
METRICS: Final = (*OF_ENTITIES, "accuracy", "macro_f1")


@spec
class TokenClassification:
    """Token classification: CoNLL-2003, WNUT 2017 (BERT 5.3).

    F1, precision and recall are those of entities; accuracy and macro-F1 over words are for all tags, e.g. parts of
    speech. The first token of a word carries its tag. Words after the end of a sequence, and words that are empty after
    normalization, count as outside all entities. If there is no tag for that, they count as wrong.
    """

    kind: Literal["token_classification"] = "token_classification"
    way: ClassVar[Way] = "tuned"
    numerics: ClassVar[int] = 1
    answer_key: ClassVar[str] = "tags"
    words: str = key(default="words", doc="Column of the words.")
    tags: str = key(default="tags", doc="Column of the tags.")
    labels: tuple[str, ...] = key(doc="Tags, in the order of their numbers.")
    scheme: Scheme = key(default="lenient", doc="Entity scheme: lenient as in conlleval, or a strict one.")
    metrics: tuple[str, ...] = key(
        default=("f1", "precision", "recall"),
        choices=METRICS,
        doc="Metrics to report; the first selects hyperparameters.",
    )

    def __post_init__(self) -> None:
        require(len(set(self.labels)) == len(self.labels) >= 2, "labels", list(self.labels), "two or more, each once")
        for name in self.metrics:
            require(name in METRICS, "metrics", name, " or ".join(METRICS))
        if asked := [name for name in self.metrics if name in OF_ENTITIES]:
            strange = measures.no_tags_of(self.scheme, self.labels)
            require(not strange, "labels", strange[:MOST_NAMED], _list_allowed(self.scheme, asked))

    def items(self, records: Records, columns: Mapping[str, str]) -> list[TaskItem]:
        words, tags = (columns.get(name, getattr(self, name)) for name in ("words", "tags"))

        def item(record: Record, place: str) -> TaskItem:
            texts = _texts(value_of(record, words, place), words, place)
            given = value_of(record, tags, place) if tags else None
            gold = None if given is None else self._tags(given, tags, place, len(texts))
            return TaskItem(place, (tuple(texts),), gold)

        return each_row(records, item)

    def _tags(self, given: Any, column: str, place: str, words: int) -> list[str] | None:
        """The tags, or None if they are missing: empty, or a placeholder for each word."""
        if isinstance(given, list) and (words or not given) and all(self._is_none(tag) for tag in given):
            return [] if not words else None
        tags_of_words = _texts(given, column, place)
        if len(tags_of_words) != words:
            raise BadInput(f"{place}: invalid {column}: got {len(tags_of_words)} tags, expected {words}, one per word")
        for tag in tags_of_words:
            if tag not in self.labels:
                raise BadInput(f"{place}: invalid tag: got {tag!r}, expected {' or '.join(self.labels)}")
        return tags_of_words

    def _is_none(self, tag: Any) -> bool:
        return is_missing(tag) or (str(tag) in _NO_TAGS and str(tag) not in self.labels)

    def encode(self, items: Sequence[TaskItem], vocab: Vocab, length: int, *, training: bool) -> EncodedItems:
        used, notes = select_answered(items, training=training)
        if training:
            notes += one_answer([tag for tags in collect_known(items) for tag in tags], "words")
        template, encoded, lost = Template(vocab, length), EncodedItems(notes=notes), 0
        for number in used:
            item = items[number]
            (words,) = item.texts
            row = template.row(list(words))
            at, of = first_pieces(row.word)
            lost += len(words) - len(of)
            labels_S = np.full(len(row.ids), IGNORE, np.int32)
            labels_S[at] = [0 if item.gold is None else self.labels.index(item.gold[word]) for word in of]
            encoded.examples.append([row.columns() | {"labels": labels_S}])
            encoded.item_of.append(number)
            encoded.stands_for.append(of)
        if lost:
            as_what = OUTSIDE if OUTSIDE in self.labels else "wrong"
            message = f"{lost} words are truncated, or have no token; they count as {as_what}"
            encoded.notes.append(message)
        return encoded

    def with_tuning(self, tuning: "Tuning") -> Self:
        refuse_tuning(self, tuning, "both_orders", "no_answer_loss_weight")
        return self

    def targets(self) -> "tuple[Target, ...]":
        from training.finetuning import TokenTag

        return (TokenTag(classes=len(self.labels)),)

    def predictions(self, items: Sequence[TaskItem], encoded: EncodedItems, outputs: Outputs) -> list[list[str]]:
        """The predicted tags of each item's words."""
        tags_by_item = [[OUTSIDE] * len(item.texts[0]) for item in items]
        for numbers, heads in outputs:
            tags = iter(heads["token_tag"].argmax(-1).tolist())
            for number in numbers:
                for word in encoded.stands_for[number]:
                    tags_by_item[number][word] = self.labels[next(tags)]
        return tags_by_item

    def class_counts(self, items: Sequence[TaskItem]) -> Counter[str]:
        return Counter(tag for tags in collect_known(items) for tag in tags)

    def scores(self, items: Sequence[TaskItem], predictions: Sequence[Sequence[str]]) -> dict[str, float]:
        both = [(item.gold, tags) for item, tags in zip(items, predictions, strict=True) if item.gold is not None]
        gold, predicted = [pair[0] for pair in both], [pair[1] for pair in both]
        pairs = [(a, b) for one, other in both for a, b in zip(one, other, strict=True)]
        values = {"accuracy": mean_of([float(a == b) for a, b in pairs])}
        if any(name in OF_ENTITIES for name in self.metrics):
            values |= measures.entity_f1(gold, predicted, self.scheme)
        if "macro_f1" in self.metrics:
            values["macro_f1"] = self._macro_f1(pairs)
        return {name: values[name] for name in self.metrics}

    def _macro_f1(self, pairs: Sequence[tuple[str, str]]) -> float:
        """The mean F1 over tags, counted in words; 0 without words."""
        number = {tag: at for at, tag in enumerate(self.labels)}
        number_N2 = np.array([(number[gold], number.get(predicted, NO_LABEL)) for gold, predicted in pairs], np.int64)
        return measures.macro_f1(*number_N2.T) if pairs else 0.0

    def majority(self, items: Sequence[TaskItem]) -> list[list[str]]:
        tag = most_frequent(items, lambda tags: tags)
        return [tag * len(item.texts[0]) for item in items] if tag else []

    def notes(self, items: Sequence[TaskItem], predictions: Sequence[Sequence[str]]) -> list[str]:
        """Notes if entity scores are 0 for lack of entities, and on words of entities that a strict scheme ignores."""
        entity_metrics = [name for name in self.metrics if name in OF_ENTITIES]
        both = [(item.gold, tags) for item, tags in zip(items, predictions, strict=True) if item.gold is not None]
        gold = [tags for tags, _ in both]
        if not entity_metrics or not both:
            return []
        words, predicted = (sum(tag != OUTSIDE for tags in of for tag in tags) for of in (gold, [t for _, t in both]))
        notes = zero(entity_metrics, "" if words else f"the {len(both):,} sentences have no entities")
        if words and predicted == measures.outside_of(self.scheme, [tags for _, tags in both]):
            notes.append(
                f"no entity is predicted in {len(both):,} sentences with {words:,} words of entities: "
                f"{', '.join(entity_metrics)} {'is' if len(entity_metrics) == 1 else 'are'} 0"
            )
        if ignored := measures.outside_of(self.scheme, gold):
            notes.append(
                f"{ignored:,} of {words:,} words of entities are invalid in scheme {self.scheme}, and are ignored"
            )
        return notes


def _list_allowed(scheme: Scheme, names: Sequence[str]) -> str:
    """The allowed labels for these entity metrics, and the remedy for other labels."""
    tags = " or ".join(", ".join([OUTSIDE, *(f"{letter}-..." for letter in each)]) for each in PREFIXES[scheme])
    of = (
        f"the entity metrics {', '.join(names)}"
        if scheme == "lenient"
        else f"scheme {scheme}; set the scheme of the files"
    )
    return f"{tags} for {of}; for other tags, such as parts of speech, set metrics: [accuracy, macro_f1]"


def _texts(value: Any, column: str, place: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadInput(f"{place}: invalid {column}: got {value!r}, expected a list of texts")
    return value


def first_pieces(word_S: np.ndarray) -> tuple[list[int], list[int]]:
    """The position of the first token of each word, and the index of the word.

    >>> first_pieces(np.array([-1, 0, 0, 2, -1]))
    ([1, 3], [0, 2])
    """
    starts = np.flatnonzero((word_S != SPECIAL) & (word_S != np.r_[SPECIAL, word_S[:-1]]))
    return starts.tolist(), word_S[starts].tolist()
