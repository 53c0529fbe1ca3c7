"""Entity F1 against conlleval's rules, written down here."""

import numpy as np
import pytest

from training.metrics import entity_f1


@pytest.mark.parametrize(
    ("gold", "predicted", "lenient", "iob1", "iob2"),
    [
        ("B-P I-P O B-L", "I-P I-P O B-L", (1, 1, 1), (0, 0, 0), (1, 0.5, 2 / 3)),
        ("B-P B-P O", "B-P I-P O", (0, 0, 0), (1, 1, 1), (0, 0, 0)),
        ("I-P I-P O I-L B-L", "B-P I-P O B-L B-L", (1, 1, 1), (0.5, 1 / 3, 0.4), (1 / 3, 1, 0.5)),
        ("B-P I-P I-P", "B-P I-L I-P", (0, 0, 0), (0, 0, 0), (0, 0, 0)),
    ],
)
def test_schemes(gold: str, predicted: str, lenient: object, iob1: object, iob2: object) -> None:
    both = [gold.split()], [predicted.split()]
    assert tuple(entity_f1(*both).values()) == pytest.approx(lenient)
    assert tuple(entity_f1(*both, "IOB1").values()) == pytest.approx(iob1)
    assert tuple(entity_f1(*both, "IOB2").values()) == pytest.approx(iob2)


def entities(tags: list[str]) -> set[tuple[int, int, str]]:
    """Start, end and type of each entity, as conlleval.pl begins and ends them."""
    found, start, kind = set(), 0, ""
    before = "O"
    for at, tag in enumerate([*tags, "O"]):
        prefix, _, of = tag.partition("-")
        old_prefix, _, old = before.partition("-")
        ends = old_prefix != "O" and (prefix in ("B", "O") or of != old)
        begins = prefix == "B" or (prefix == "I" and (old_prefix == "O" or of != old))
        if ends and kind:
            found.add((start, at, kind))
            kind = ""
        if begins:
            start, kind = at, of
        before = tag
    return found


def test_a_thousand_random_sentences() -> None:
    rng = np.random.default_rng(0)
    tags = ["O", "O", "B-P", "I-P", "B-L", "I-L"]
    for _ in range(1_000):
        gold, predicted = (rng.choice(tags, int(rng.integers(1, 12))).tolist() for _ in range(2))
        predicted = (predicted * 12)[: len(gold)]
        ours, theirs = entities(gold), entities(predicted)
        right = len(ours & theirs)
        scores = entity_f1([gold], [predicted])
        assert scores["precision"] == pytest.approx(right / len(theirs) if theirs else 0)
        assert scores["recall"] == pytest.approx(right / len(ours) if ours else 0)


def test_sentences_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="lengths differ"):
        entity_f1([["O", "O"]], [["O"]])
