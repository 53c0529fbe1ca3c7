"""Epochs as the length of a phase: they become steps, and never change the hash of a recipe with steps."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.config import describe_epochs, has_epochs, load, resolve_epochs
from orchestration.config.epochs import refuse_epochs
from preprocessing.errors import BadInput
from training.specs import Phase

THREE = "phases.0.epochs=3"


def test_a_phase_has_steps_or_epochs() -> None:
    assert Phase(seq_length=128, global_batch_size=32, epochs=2.5).steps == 0
    with pytest.raises(ValueError, match=r"phases.steps.*0 with phases.epochs; set one of both"):
        Phase(seq_length=128, global_batch_size=32, epochs=2.5, steps=10)
    with pytest.raises(ValueError, match=r"phases.steps.*at least 1 step, or phases.epochs instead"):
        Phase(seq_length=128, global_batch_size=32)
    with pytest.raises(ValueError, match=r"phases.epochs.*a positive number"):
        Phase(seq_length=128, global_batch_size=32, epochs=-1)


def test_an_override_replaces_the_steps_of_its_phase_only() -> None:
    recipe = load("bert_base", [THREE], with_epochs=True)
    assert [(phase.steps, phase.epochs) for phase in recipe.phases] == [(0, 3.0), (100_000, 0.0)]
    assert load("bert_base", [THREE], "tiny", with_epochs=True).phases[0].epochs == 3.0
    with pytest.raises(BadInput, match="set one of both"):
        load("bert_base", [THREE, "phases.0.steps=9"], with_epochs=True)


def test_a_command_without_text_refuses_epochs() -> None:
    with pytest.raises(
        BadInput,
        match=r"invalid phases.0.epochs: got 3, expected steps, because this command reads no text; set phases.0.steps",
    ):
        load("bert_base", [THREE])


def test_an_incomplete_batch_counts_as_a_step() -> None:
    declared = load("bert_base", [THREE], with_epochs=True)
    resolved = resolve_epochs(declared, lambda phase: 10.4)
    assert [(phase.steps, phase.epochs) for phase in resolved.phases] == [(32, 0.0), (100_000, 0.0)]
    assert not has_epochs(resolved)
    refuse_epochs(resolved, "here")
    assert resolve_epochs(declared, lambda phase: 0.0).phases[0].steps == 1
    assert describe_epochs(declared, resolved, is_estimate=True) == [
        "phases.0: 3 epochs are about 32 steps of 256 sequences; the exact number follows from the corpus"
    ]
    assert describe_epochs(declared, resolved, is_estimate=False) == [
        "phases.0: 3 epochs are 32 steps of 256 sequences"
    ]


def test_resolved_epochs_have_the_hash_of_the_same_steps(tmp_path: Path) -> None:
    declared = load("bert_base", [THREE], with_epochs=True)
    steps = load("bert_base", ["phases.0.steps=32"])
    assert resolve_epochs(declared, lambda phase: 10.4).hash == steps.hash
    assert replace(steps, phases=declared.phases).hash != steps.hash
