"""Entity F1 as in CoNLL's official scorer (conlleval): an entity is correct if its boundaries and its type are."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

Scheme = Literal["lenient", "IOB1", "IOB2", "IOBES", "BILOU"]
"""lenient: as conlleval, which starts an entity at each change of type, for any prefix. The others are strict."""

OUTSIDE: Final = "O"
PREFIXES: Final[Mapping[Scheme, Sequence[str]]] = {
    "lenient": ("BIES", "BILU"),
    "IOB1": ("BI",),
    "IOB2": ("BI",),
    "IOBES": ("BIES",),
    "BILOU": ("BILU",),
}
"""The prefixes of entity tags, before a hyphen and the type: one of these sets of letters."""
_BIOES: Final = {"L": "E", "U": "S"}  # of BILOU: the last word, and an entity of one word


def no_tags_of(scheme: Scheme, labels: Sequence[str]) -> list[str]:
    """Return labels that are not tags of the scheme. Of two sets of prefixes, the better matching one is used.

    >>> no_tags_of("lenient", ["O", "B-PER", "NN"]), no_tags_of("IOB2", ["O", "B-PER", "S-PER"])
    (['NN'], ['S-PER'])
    """
    return min(([tag for tag in labels if not _is_tag(tag, letters)] for letters in PREFIXES[scheme]), key=len)


def _is_tag(label: str, letters: str) -> bool:
    prefix, hyphen, kind = label.partition("-")
    return label == OUTSIDE or (len(prefix) == 1 and prefix in letters and bool(kind) == bool(hyphen))


def entity_f1(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: Scheme = "lenient"
) -> dict[str, float]:
    """`precision`, `recall` and `f1` over the entities of all sentences; 0 if there are none.

    >>> gold = [["B-P", "I-P", "O", "B-L"]]
    >>> entity_f1(gold, [["I-P", "I-P", "O", "B-L"]])["f1"]
    1.0

    Raises ValueError if gold and predicted sentences differ in length.
    """
    from seqeval.metrics import f1_score, precision_score, recall_score
    from seqeval.scheme import IOB1, IOB2, IOBES

    lengths = [len(sentence) for sentence in gold], [len(sentence) for sentence in predicted]
    if lengths[0] != lengths[1]:
        raise ValueError("gold and predicted tags have different lengths; give tags of the same sentences")
    strict = {"IOB1": IOB1, "IOB2": IOB2, "IOBES": IOBES, "BILOU": IOBES}
    how = {} if scheme == "lenient" else {"mode": "strict", "scheme": strict[scheme]}
    both = _as_bioes(gold), _as_bioes(predicted)
    scores = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    return {name: float(score(*both, average="micro", zero_division=0, **how)) for name, score in scores.items()}


def outside_of(scheme: Scheme, gold: Sequence[Sequence[str]]) -> int:
    """The number of words tagged as part of an entity that are not in a valid entity of a strict scheme.

    >>> outside_of("IOB2", [["I-P", "O", "B-P", "I-P"]])
    1
    """
    from seqeval.scheme import IOB1, IOB2, IOBES, Entities

    if scheme == "lenient":
        return 0
    strict = {"IOB1": IOB1, "IOB2": IOB2, "IOBES": IOBES, "BILOU": IOBES}
    found = Entities(_as_bioes(gold), strict[scheme]).entities
    tagged = sum(tag != OUTSIDE for sentence in gold for tag in sentence)
    return tagged - sum(entity.end - entity.start for sentence in found for entity in sentence)


def _as_bioes(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    """Convert BILOU prefixes to BIOES, since seqeval supports BILOU in strict mode only."""
    return [[_BIOES.get(tag[:1], tag[:1]) + tag[1:] for tag in sentence] for sentence in sentences]
