"""Entity F1 compared with the rules of conlleval, reimplemented here."""

from collections.abc import Callable
from itertools import takewhile
from typing import Literal

import numpy as np
import pytest

from training.evaluation.metrics import Scheme, entity_f1, no_tags_of, outside_of


@pytest.mark.parametrize(
    ("gold", "predicted", "lenient", "iob1", "iob2"),
    [
        ("B-P I-P O B-L", "I-P I-P O B-L", (1, 1, 1), (0, 0, 0), (1, 0.5, 2 / 3)),
        ("B-P B-P O", "B-P I-P O", (0, 0, 0), (1, 1, 1), (0, 0, 0)),
        ("I-P I-P O I-L B-L", "B-P I-P O B-L B-L", (1, 1, 1), (0.5, 1 / 3, 0.4), (1 / 3, 1, 0.5)),
        ("B-P I-P I-P", "B-P I-L I-P", (0, 0, 0), (0, 0, 0), (0, 0, 0)),
    ],
)
def test_each_scheme_gives_its_scores(gold: str, predicted: str, lenient: object, iob1: object, iob2: object) -> None:
    both = [gold.split()], [predicted.split()]
    assert tuple(entity_f1(*both).values()) == pytest.approx(lenient)
    assert tuple(entity_f1(*both, "IOB1").values()) == pytest.approx(iob1)
    assert tuple(entity_f1(*both, "IOB2").values()) == pytest.approx(iob2)


def test_e_and_s_prefixes_count_only_in_iobes() -> None:
    """Row 5 of the schemes above: the last word of an entity has E, an entity of one word has S."""
    both = [["B-P", "E-P", "O", "S-L"]], [["B-P", "I-P", "O", "S-L"]]
    assert tuple(entity_f1(*both).values()) == pytest.approx((1, 1, 1))
    assert tuple(entity_f1(*both, "IOBES").values()) == pytest.approx((1, 0.5, 2 / 3))
    for scheme in ("IOB1", "IOB2"):
        with pytest.raises(ValueError, match="E-P"):
            entity_f1(*both, scheme)


def reference_iobes(tags: list[str]) -> set[tuple[int, int, str]]:
    """Start, end and type of each well-formed entity: S, or B, any number of I, and E, all of one type."""
    found = {(at, at + 1, tag[2:]) for at, tag in enumerate(tags) if tag[0] == "S"}
    for start in range(len(tags)):
        for stop in range(start + 2, len(tags) + 1):
            kind = tags[start][2:]
            if tags[start:stop] == [f"B-{kind}", *[f"I-{kind}"] * (stop - start - 2), f"E-{kind}"]:
                found.add((start, stop, kind))
    return found


def test_random_sentences_equal_the_iobes_reference() -> None:
    rng = np.random.default_rng(0)
    tags = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "PL")]
    for _ in range(1_000):
        gold = rng.choice(tags, 8).tolist()
        predicted = [tag if rng.random() < 0.7 else str(rng.choice(tags)) for tag in gold]
        ours, theirs = reference_iobes(gold), reference_iobes(predicted)
        right = len(ours & theirs)
        scores = entity_f1([gold], [predicted], "IOBES")
        assert scores["precision"] == pytest.approx(right / len(theirs) if theirs else 0)
        assert scores["recall"] == pytest.approx(right / len(ours) if ours else 0)


def test_bilou_equals_iobes_with_other_letters() -> None:
    """Two adjacent names of one word are two entities, which conlleval's prefixes cannot separate."""
    gold, predicted = ["U-P", "U-P", "O", "U-L"], ["U-P", "O", "O", "U-L"]
    for scheme in ("lenient", "BILOU"):
        assert entity_f1([gold], [predicted], scheme)["f1"] == pytest.approx(0.8)
    rng = np.random.default_rng(0)
    tags = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "PL")]
    letters = str.maketrans({"E": "L", "S": "U"})
    for _ in range(300):
        both = [[rng.choice(tags, 8).tolist()] for _ in range(2)]
        others = [[[tag[:1].translate(letters) + tag[1:] for tag in one]] for (one,) in both]
        assert entity_f1(*others) == entity_f1(*both)
        assert entity_f1(*others, "BILOU") == entity_f1(*both, "IOBES")


@pytest.mark.parametrize(
    ("labels", "scheme", "strange"),
    [
        ("O B-PER I-PER", "lenient", ""),
        ("O B I", "lenient", ""),
        ("O I-creative-work", "IOB1", ""),
        ("O B-P I-P E-P S-P", "IOBES", ""),
        ("O B-P I-P L-P U-P", "lenient", ""),
        ("O U-PER U-LOC", "BILOU", ""),
        ("DT NN VBD NNP NNP$", "lenient", "DT NN VBD NNP NNP$"),
        ("O PER LOC", "lenient", "PER LOC"),
        ("O B- B-P", "lenient", "B-"),
        ("O B-P M-P E-P", "lenient", "M-P"),
        ("O B-P E-P S-P U-P", "lenient", "U-P"),
        ("O B-P I-P U-P L-P", "IOBES", "U-P L-P"),
        ("O B-P E-P", "IOB1", "E-P"),
        ("NN O", "IOB2", "NN"),
    ],
)
def test_labels_outside_of_the_scheme_are_listed(labels: str, scheme: Scheme, strange: str) -> None:
    assert no_tags_of(scheme, labels.split()) == strange.split()


def test_entity_words_that_violate_a_strict_scheme_are_counted() -> None:
    gold = [["I-P", "I-P", "O", "B-P", "I-P"], ["O", "B-L", "I-P"]]
    assert [outside_of(scheme, gold) for scheme in ("lenient", "IOB2", "IOB1")] == [0, 3, 2]
    assert outside_of("BILOU", [["B-P", "L-P", "U-P", "I-P"]]) == 1


def reference_iob2(tags: list[str]) -> set[tuple[int, int, str]]:
    """Entities in IOB2: a B, and all directly following I of the same type."""
    found = set()
    for start, tag in enumerate(tags):
        if tag[0] == "B":
            same = takewhile(lambda other, kind=tag[2:]: other == f"I-{kind}", tags[start + 1 :])  # type: ignore[misc]
            found.add((start, start + 1 + len(list(same)), tag[2:]))
    return found


def reference_iob1(tags: list[str]) -> set[tuple[int, int, str]]:
    """Entities in IOB1: consecutive I of one type. A B starts an entity only directly after a word of the same type.
    After a word of another type, B is unnecessary and therefore invalid."""
    found, at = set(), 0
    while at < len(tags):
        prefix, kind = tags[at][0], tags[at][2:]
        begins = prefix == "I" or (prefix == "B" and at > 0 and tags[at - 1][2:] == kind)
        stop = at + 1
        while begins and tags[stop : stop + 1] == [f"I-{kind}"]:
            stop += 1
        follows = tags[stop] if stop < len(tags) else "O"
        if begins and not (prefix == "B" and stop == at + 1 and follows[0] == "B" and follows[2:] != kind):
            found.add((at, stop, kind))
        at = stop
    return found


@pytest.mark.parametrize(("scheme", "entities_of"), [("IOB1", reference_iob1), ("IOB2", reference_iob2)])
def test_random_sentences_equal_the_references_of_strict_schemes(
    scheme: Literal["IOB1", "IOB2"], entities_of: Callable[[list[str]], set[tuple[int, int, str]]]
) -> None:
    rng = np.random.default_rng(0)
    tags = ["O", "B-P", "I-P", "B-L", "I-L"]
    for _ in range(1_000):
        gold = rng.choice(tags, 8).tolist()
        predicted = [tag if rng.random() < 0.7 else str(rng.choice(tags)) for tag in gold]
        ours, theirs = entities_of(gold), entities_of(predicted)
        right = len(ours & theirs)
        scores = entity_f1([gold], [predicted], scheme)
        assert scores["precision"] == pytest.approx(right / len(theirs) if theirs else 0)
        assert scores["recall"] == pytest.approx(right / len(ours) if ours else 0)


def reference_lenient(tags: list[str]) -> set[tuple[int, int, str]]:
    """Start, end and type of each entity by the rules of conlleval.pl."""
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


def test_random_sentences_equal_the_lenient_reference() -> None:
    rng = np.random.default_rng(0)
    tags = ["O", "O", "B-P", "I-P", "B-L", "I-L"]
    for _ in range(1_000):
        gold, predicted = (rng.choice(tags, int(rng.integers(1, 12))).tolist() for _ in range(2))
        predicted = (predicted * 12)[: len(gold)]
        ours, theirs = reference_lenient(gold), reference_lenient(predicted)
        right = len(ours & theirs)
        scores = entity_f1([gold], [predicted])
        assert scores["precision"] == pytest.approx(right / len(theirs) if theirs else 0)
        assert scores["recall"] == pytest.approx(right / len(ours) if ours else 0)


def test_sentences_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        entity_f1([["O", "O"]], [["O"]])
