"""Console views of a corpus, generated samples and task examples."""

from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from orchestration.launch.job_server import SubmittedJob
from orchestration.terminal import views
from preprocessing.manifest import Count, Ledger, Manifest
from training.evaluation.tasks import TaskScore


def test_added_bytes_are_not_shown_as_dropped() -> None:
    ledger = Ledger(Count(3, 90), Count(2, 95), {"added": Count(0, -20), "too_short": Count(1, 15)})
    assert ledger.is_balanced()
    console = Console(width=80)
    with console.capture() as shown:
        console.print(views.card(Manifest("text", "", "", {}, {}, (), ledger)))
    lines = [" ".join(line.split()) for line in shown.get().splitlines()]
    assert "0 added -20" in lines
    assert "1 dropped: too_short 15" in lines


def test_samples_before_and_after_pretraining_are_shown_as_paragraphs() -> None:
    found = {"before": ["Return the the the"], "after": ["Return the name\n\nof " + "a " * 200]}
    lines = views.samples(found).plain.splitlines()
    assert lines[:3] == [
        "generated before pretraining:",
        "  Return the the the",
        "generated after pretraining:",
    ]
    assert lines[3].startswith("  Return the name of a a")
    assert lines[3].endswith(" ...")
    assert views.samples({}).plain == ""


def test_examples_of_several_steps_name_their_step() -> None:
    actual = [
        TaskScore("cloze", "accuracy", "test", "", {}, step, examples={"pretrained": "a b"}) for step in (200, 400)
    ]
    assert views.examples(actual).plain.splitlines()[::2] == [
        "cloze at step 200, after pretraining:",
        "cloze at step 400, after pretraining:",
    ]


def test_the_perplexity_of_a_diverged_model_is_one_short_number(tmp_path: Path) -> None:
    result = {"step": 10, "tokens": 640, "evaluation": {"eval/loss": 702.5, "eval/perplexity": 1e305}}
    console = Console(width=80)
    with console.capture() as shown:
        console.print(views.summarize_training(tmp_path, result))
    lines = [" ".join(line.split()) for line in shown.get().splitlines()]
    assert lines[-2:] == ["eval/loss 702.5000", "eval/perplexity 1e+305"]


@pytest.mark.parametrize(
    ("status", "ended", "duration"), [("RUNNING", 0.0, "0:01:30"), ("FAILED", 1_060.0, "0:01:00"), ("PENDING", 0.0, "")]
)
def test_a_running_job_has_a_duration(
    status: str, ended: float, duration: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column was once empty until the end of a job."""
    monkeypatch.setattr(views.time, "time", lambda: 1_090.0)
    table = views.list_jobs([SubmittedJob(id="a", status=status, command="", began=1_000.0, ended=ended)])
    assert isinstance(table, Table)
    assert [str(cell) for cell in table.columns[3].cells] == [duration]
