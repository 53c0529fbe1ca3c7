"""A part that lacks a fact is refused before a run; the message names the fact, its class and the explaining file."""

import dataclasses
import re
import shutil
import typing
from pathlib import Path
from typing import ClassVar, Literal

import pytest

import preprocessing.masking
import preprocessing.tokenization
from orchestration.config import check, load, load_cluster, part_checks
from orchestration.config.loading import _adapter
from preprocessing.errors import BadInput
from preprocessing.masking import Masking, MaskingPart, NoMasking, TokenMasking
from preprocessing.objectives import MaskedLM
from preprocessing.packing import Contiguous
from preprocessing.part_combinations import impossible
from preprocessing.spec import spec
from training.evaluation.tasks import TaskPart
from training.specs import Architecture, PositionEmbedding


@spec
class Half:
    """A masking part without most of its facts."""

    kind: Literal["half"] = "half"
    required_columns: ClassVar[frozenset[str]] = frozenset()


def test_every_part_of_sesame_has_its_facts() -> None:
    assert [part_checks.find_missing_facts(member, protocol) for member, protocol in ((NoMasking, MaskingPart),)] == [
        ""
    ]
    part_checks.check_facts.cache_clear()
    part_checks.check_facts()


def test_a_part_without_a_fact_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_checks, "UNIONS", ((Half | NoMasking, MaskingPart),))
    part_checks.check_facts.cache_clear()
    try:
        with pytest.raises(
            BadInput,
            match=r"test_part_checks\.py: invalid part Half: got no .*`describe`.*; add .*/masking/part\.py",
        ):
            load("bert_base")
    finally:
        part_checks.check_facts.cache_clear()


def test_a_class_without_the_spec_decorator_is_refused() -> None:
    assert "put @spec above the class" in part_checks.find_missing_facts(int, TaskPart)


@spec
class Twice(NoMasking):
    """A masking part whose kind another part already has."""

    kind: Literal["none"] = "none"


@spec
class EveryNth(TokenMasking):
    """A masking part that divides by a value that it does not check."""

    every: int = 0

    @property
    def predicted(self) -> float:
        return 1 / self.every


def test_a_fact_that_cannot_be_computed_is_a_problem_of_the_recipe() -> None:
    recipe = dataclasses.replace(load("bert_base"), masking=EveryNth())
    (problem,) = check(recipe, load_cluster("local"))
    assert re.fullmatch(
        r"masking: `predicted` of kind token fails \(ZeroDivisionError: division by zero, in predicted "
        r"\(.*test_part_checks\.py:\d+\)\); change the values, and check them with `require` in __post_init__ of the "
        "class",
        problem,
    )


def test_a_constructor_that_divides_by_zero_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenMasking, "__post_init__", lambda _: 1 // 0)
    _adapter.cache_clear()
    try:
        with pytest.raises(
            BadInput, match=r"^.*roberta_base.*: a part fails \(ZeroDivisionError: .*; change the values"
        ):
            load("roberta_base")
    finally:
        _adapter.cache_clear()


def test_two_parts_of_the_same_kind_are_refused_by_name() -> None:
    assert part_checks.find_duplicate_kind(NoMasking | TokenMasking) == ""
    actual = part_checks.find_duplicate_kind(NoMasking | Twice)
    assert actual.endswith(
        "test_part_checks.py: invalid part Twice: got kind 'none', expected another kind than in "
        "preprocessing/masking/none.py; rename the kind"
    )


def test_a_part_missing_from_its_union_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forgotten.py").write_text('kind: Literal["forgotten"] = "forgotten"\n')
    (tmp_path / "__init__.py").write_text("\nMasking = NoMasking | TokenMasking\n")
    monkeypatch.setattr(preprocessing.masking, "__file__", str(tmp_path / "__init__.py"))
    message = (
        "invalid masking.kind: got 'forgotten', expected one of .*; "
        "add the class in preprocessing/masking/forgotten.py to the union Masking in preprocessing/masking/__init__.py"
    )
    with pytest.raises(BadInput, match=message):
        load("bert_base", ["masking={kind: forgotten}"])


def test_a_kind_of_another_union_is_not_reported_as_missing() -> None:
    assert part_checks.find_unlisted_part(typing.get_args(Architecture), "sinusoidal") == ""
    assert part_checks.find_unlisted_part(typing.get_args(Masking), "cloze") == ""


def test_a_loss_cannot_require_a_column_that_batches_lack() -> None:
    actual = impossible(
        Contiguous(unit="token"), TokenMasking(), MaskedLM(), {"frequent": frozenset({"labels", "counts"})}
    )
    assert actual == (
        "loss 'frequent' needs column 'counts', which only masking and objective can read: "
        "remove it from the required columns of the loss"
    )


def test_a_missing_tokenizer_part_is_reported_with_the_file_of_its_union(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(Path(preprocessing.tokenization.__file__).with_name("specs.py"), tmp_path)
    (tmp_path / "chars.py").write_text('kind: Literal["chars"] = "chars"\n')
    monkeypatch.setattr(preprocessing.tokenization, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(
        BadInput,
        match=r"add the class in .*/chars\.py to the union TokenizerSpec in preprocessing/tokenization/specs\.py$",
    ):
        load("bert_base", ["data.tokenizer={kind: chars}"])


def test_parts_nested_in_a_trunk_require_their_facts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_checks, "INNER", {PositionEmbedding: (Half,)})
    part_checks.check_facts.cache_clear()
    try:
        with pytest.raises(
            BadInput,
            match=r"test_part_checks\.py: invalid part Half: got no .*`describe`.*; add .*/position_embedding\.py",
        ):
            load("bert_base")
    finally:
        part_checks.check_facts.cache_clear()
