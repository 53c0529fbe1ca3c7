"""Sesame's JSON records with unexpected content: emptied, replaced, or edited by hand."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestration import launch
from orchestration.evaluation import eval_target, trials
from orchestration.evaluation.eval_request import EvalTarget
from orchestration.evaluation.score_plan import plan_tasks
from orchestration.jobs import runs, stages
from orchestration.jobs.job import JobFlags
from orchestration.reports import saved_scores
from orchestration.reports.model_card import card
from orchestration.tracking import models
from preprocessing.errors import BadInput
from tests.orchestration.evaluation.runs import make_request, score_one

KINDS = {"list": "[]", "number": "5", "words": '["a"]', "numbers": "[1]", "object": '{"x": 5}', "deep": "[" * 100_000}


def all_steps(target: EvalTarget) -> Any:
    return eval_target.targets_at_steps(target, 1)


READERS: dict[str, tuple[str, Callable[[EvalTarget], Any]]] = {
    "mark": (stages.MARK, lambda target: eval_target.target_of_run(target.folder)),
    "run": (launch.RUN, lambda target: eval_target.target_of_run(target.folder)),
    "result": (runs.RESULT, lambda target: runs.result_of(target.folder)),
    "result, for its last step": (runs.RESULT, lambda target: runs.last_step_of(target.folder)),
    "result, for all steps": (runs.RESULT, all_steps),
    "result, on the card": (runs.RESULT, lambda target: card._results(target.folder, ())),
    "score": (saved_scores.FILE, lambda target: saved_scores.load_score(target.folder)),
    "mask": ("tokenizer_config.json", lambda target: models._mask(target.folder)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_record_gives_a_one_line_error_with_a_remedy(target: EvalTarget, reader: str, kind: str) -> None:
    """Such files once caused a TypeError or KeyError with a traceback."""
    name, read = READERS[reader]
    (target.folder / name).write_text(KINDS[kind])
    with pytest.raises(
        BadInput, match=rf"{name}: is damaged .*; .*(again|anew|resume with|directory|repeat the command)"
    ) as found:
        read(target)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("kind", ["number", "numbers", "object", "deep"])
def test_damaged_task_list_gives_a_one_line_error(target: EvalTarget, kind: str) -> None:
    (target.folder / runs.EVALS).write_text(KINDS[kind])
    with pytest.raises(BadInput, match=r"evals\.json: is damaged .*; delete it to use all tasks"):
        runs.eval_tasks_of(JobFlags(recipe=str(target.folder)))


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_trial_result_gives_a_one_line_error(
    target: EvalTarget, data: Path, trial_names: list[str], kind: str
) -> None:
    score_one(target, make_request(data))
    (plan,) = plan_tasks(target, make_request(data))
    plan.file_of(plan.cells[0]).write_text(KINDS[kind])
    with pytest.raises(BadInput, match=r"\.json: is damaged .*; delete it and repeat the command"):
        trials.load_results(plan)


def test_unreadable_code_record_counts_as_changed_code(tmp_path: Path) -> None:
    """A file of 200,000 brackets once caused a RecursionError in every command."""
    stage = stages.JobStage("run", tmp_path, "bert", {})
    (stage.folder / "checkpoints/step-000000002").mkdir(parents=True)
    for text in KINDS.values():
        (stage.folder / stages.CODE).write_text(text)
        stage.find_changed_code()
    (stage.folder / stages.CODE).write_text(KINDS["deep"])
    assert stage.find_changed_code() == [stages.CODE]


@pytest.mark.parametrize("mark", ["[]", "{}", '{"causes": 5}', '{"causes": []}', "[" * 100_000])
def test_damaged_marks_of_other_stages_are_skipped(target: EvalTarget, tmp_path: Path, mark: str) -> None:
    stage = stages.JobStage("run", target.folder.parent, "bert_base_tiny", {})
    (target.folder / stages.MARK).write_text(mark)
    assert stage.find_others() == []
    folder = target.folder / "scores" / "x-12345678"
    folder.mkdir(parents=True)
    shutil.copy(target.folder / stages.MARK, folder)
    assert saved_scores.load_finished_scores(target.folder) == saved_scores.series(target.folder) == {}
