"""A part without a fact is refused before anything runs, with the fact, the class and the file that explains it."""

from typing import ClassVar, Literal

import pytest

from orchestration.config import facts, load
from preprocessing.choose import Choice, Nothing, Tokens
from preprocessing.errors import BadInput
from preprocessing.rewrite import Cloze
from preprocessing.rows import impossible
from preprocessing.segment import Packed
from preprocessing.spec import spec
from training.tasks import TaskPart


@spec
class Half:
    """A choice that forgets most of its facts."""

    kind: Literal["half"] = "half"
    needs: ClassVar[frozenset[str]] = frozenset()


def test_every_part_of_sesame_has_its_facts() -> None:
    assert [facts.lacking(member, protocol) for member, protocol in ((Nothing, Choice),)] == [""]
    facts.check_facts.cache_clear()
    facts.check_facts()


def test_a_part_without_a_fact_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "UNIONS", ((Half | Nothing, Choice),))
    facts.check_facts.cache_clear()
    try:
        with pytest.raises(
            BadInput, match=r"test_facts\.py: Half has no .*`describe`.*; preprocessing/choose/part\.py"
        ):
            load("bert_base")
    finally:
        facts.check_facts.cache_clear()


def test_a_class_that_is_no_part_is_refused() -> None:
    assert "put @spec above the class" in facts.lacking(int, TaskPart)


def test_a_loss_cannot_ask_for_a_column_that_no_batch_has() -> None:
    said = impossible(Packed(fill="tokens"), Tokens(), Cloze(), {"frequent": frozenset({"labels", "counts"})})
    assert said == "loss 'frequent' needs column 'counts', which only choose and rewrite can have: leave it out"
