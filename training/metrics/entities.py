"""Entity F1 as CoNLL's official scorer (conlleval) counts it: an entity is right where its ends and its type are."""

from collections.abc import Sequence
from typing import Literal

Scheme = Literal["lenient", "IOB1", "IOB2", "IOBES"]
"""lenient: as conlleval, which begins an entity at each change of type, whatever the prefix; the others are strict."""


def entity_f1(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: Scheme = "lenient"
) -> dict[str, float]:
    """`precision`, `recall` and `f1` over the entities of all sentences; 0 where there are none.

    >>> gold = [["B-P", "I-P", "O", "B-L"]]
    >>> entity_f1(gold, [["I-P", "I-P", "O", "B-L"]])["f1"]
    1.0

    Raises ValueError where a sentence has other tags than words.
    """
    from seqeval.metrics import f1_score, precision_score, recall_score
    from seqeval.scheme import IOB1, IOB2, IOBES

    lengths = [len(sentence) for sentence in gold], [len(sentence) for sentence in predicted]
    if lengths[0] != lengths[1]:
        raise ValueError("gold and predicted tags are of other sentences: their lengths differ")
    strict = {"IOB1": IOB1, "IOB2": IOB2, "IOBES": IOBES}
    how = {} if scheme == "lenient" else {"mode": "strict", "scheme": strict[scheme]}
    both = [list(sentence) for sentence in gold], [list(sentence) for sentence in predicted]
    scores = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    return {name: float(score(*both, average="micro", zero_division=0, **how)) for name, score in scores.items()}
