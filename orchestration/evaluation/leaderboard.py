"""Files for the submission to a leaderboard."""

from collections.abc import Sequence
from pathlib import Path

from orchestration.evaluation.score_plan import TaskPlan
from orchestration.evaluation.trials import load_results, select_best, select_chosen
from preprocessing.files import write_atomic
from preprocessing.folders import make_directory, require_local_path
from training.evaluation.metrics import submission
from training.evaluation.tasks import TaskScore


def submit(plans: Sequence[TaskPlan], scores: Sequence[TaskScore], folder: Path) -> list[str]:
    """Write the files for a leaderboard and return their names. Predictions are those of the seed that is best on dev,
    if there is a dev split."""
    require_local_path("--leaderboard-dir", folder)
    files = dict[str, str]()
    score_of = {(score.task, score.step, score.labels): score for score in scores}
    for plan in plans:
        if (score := score_of.get((plan.task, plan.step, plan.labels))) is None:
            continue  # all of its trials failed; an earlier warning named them
        best = select_best(plan, select_chosen(load_results(plan), score.starts, "pretrained"))[1]
        files |= {file: submission(best.predictions[split]) for split, file in plan.submission.items()}
    make_directory(folder)
    for name, text in files.items():
        write_atomic(folder / name, text.encode())
    return sorted(files)
