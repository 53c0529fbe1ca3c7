"""Records of ours that are JSON, and of another kind: emptied, exchanged, or half written by hand."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestration import launch
from orchestration.jobs import eval_target, evaluate, runs, stages
from orchestration.jobs.eval_request import EvalTarget
from orchestration.jobs.job import JobFlags
from orchestration.jobs.score_plan import plan_tasks
from orchestration.reports import saved_scores
from orchestration.reports.model_card import card
from orchestration.tracking import models
from preprocessing.errors import BadInput
from tests.orchestration.jobs.runs import scored, wanted

KINDS = {"list": "[]", "number": "5", "words": '["a"]', "numbers": "[1]", "object": '{"x": 5}', "deep": "[" * 100_000}


def all_steps(net: EvalTarget) -> Any:
    return eval_target.targets_at_steps(net, 1)


READERS: dict[str, tuple[str, Callable[[EvalTarget], Any]]] = {
    "mark": (stages.MARK, lambda net: eval_target.target_of_run(net.folder)),
    "run": (launch.RUN, lambda net: eval_target.target_of_run(net.folder)),
    "result": (runs.RESULT, lambda net: runs.result_of(net.folder)),
    "result, for its last step": (runs.RESULT, lambda net: evaluate._last_step(net.folder)),
    "result, for all steps": (runs.RESULT, all_steps),
    "result, on the card": (runs.RESULT, lambda net: card._results(net.folder, ())),
    "score": (saved_scores.FILE, lambda net: saved_scores.load_score(net.folder)),
    "mask": ("tokenizer_config.json", lambda net: models._mask(net.folder)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_of_another_kind_is_one_line_with_what_to_do(net: EvalTarget, reader: str, kind: str) -> None:
    """They were TypeErrors and KeyErrors with a traceback."""
    name, read = READERS[reader]
    (net.folder / name).write_text(KINDS[kind])
    with pytest.raises(
        BadInput, match=rf"{name}: is damaged .*; .*(again|anew|resume with|directory|repeat the command)"
    ) as found:
        read(net)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("kind", ["number", "numbers", "object", "deep"])
def test_names_of_tasks_that_are_none_are_one_line(net: EvalTarget, kind: str) -> None:
    (net.folder / runs.EVALS).write_text(KINDS[kind])
    with pytest.raises(BadInput, match=r"evals\.json: is damaged .*; delete it to use all tasks"):
        runs.eval_tasks_of(JobFlags(recipe=str(net.folder)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_of_another_kind_is_one_line(net: EvalTarget, data: Path, done: list[str], kind: str) -> None:
    scored(net, wanted(data))
    (plan,) = plan_tasks(net, wanted(data))
    plan.file_of(plan.cells[0]).write_text(KINDS[kind])
    with pytest.raises(BadInput, match=r"\.json: is damaged .*; delete it and repeat the command"):
        evaluate._load_results(plan)


def test_the_code_of_a_stage_that_cannot_be_read_has_changed(tmp_path: Path) -> None:
    """200,000 brackets were a RecursionError of every verb."""
    stage = stages.JobStage("run", tmp_path, "bert", {})
    stage.folder.mkdir()
    for text in KINDS.values():
        (stage.folder / stages.CODE).write_text(text)
        stage.changed_code()
    (stage.folder / stages.CODE).write_text(KINDS["deep"])
    assert stage.changed_code() == [stages.CODE]


@pytest.mark.parametrize("mark", ["[]", "{}", '{"causes": 5}', '{"causes": []}', "[" * 100_000])
def test_marks_of_others_that_are_damaged_are_passed_over(net: EvalTarget, tmp_path: Path, mark: str) -> None:
    stage = stages.JobStage("run", net.folder.parent, "bert_base_tiny", {})
    (net.folder / stages.MARK).write_text(mark)
    assert stage.find_others() == []
    folder = net.folder / "scores" / "x-12345678"
    folder.mkdir(parents=True)
    shutil.copy(net.folder / stages.MARK, folder)
    assert saved_scores.load_finished_scores(net.folder) == saved_scores.series(net.folder) == {}
