"""Ray and workers that start early: they are used once and only if they fit, and end with the block."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestration.jobs import JobFlags, early_start, open_job
from orchestration.launch import placement, session
from orchestration.launch.nodes import WorkerRequirements
from orchestration.launch.placement import SpareWorkers, WorkerGroup, offer_workers, options_of
from preprocessing.errors import ResourceError
from training.specs import EngineSettings

NEEDS, ENGINE = WorkerRequirements(num_workers=2), EngineSettings()


# The session, with a start of Ray that does nothing


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that started Ray, and the ends of Ray, in order."""
    events = list[str]()

    @contextmanager
    def prepare(address: str, **options: Any) -> Iterator[Any]:
        try:
            yield lambda: events.append(threading.current_thread().name)
        finally:
            events.append(f"end, thread {'lives' if 'early Ray' in map(str, names()) else 'is gone'}")

    def names() -> list[str]:
        return [each.name for each in threading.enumerate()]

    monkeypatch.setattr(session, "_prepare_session", prepare)
    return events


def test_ray_starts_in_a_thread_that_lives_until_ray_has_ended(starts: list[str]) -> None:
    """Linux kills the processes of Ray when the thread that started them ends."""
    with session.early_ray_session(cpus=1, warm_up=lambda: starts.append("warm-up")):
        assert session._early.get()
        session._early.get().wait(lambda event: None)  # type: ignore[union-attr]
        assert starts == ["early Ray", "warm-up"]
    assert starts[2:] == ["end, thread lives"]
    assert "early Ray" not in [each.name for each in threading.enumerate()]


def test_the_end_waits_for_a_start_that_is_not_complete(starts: list[str]) -> None:
    with (
        pytest.raises(ValueError, match="bad text"),
        session.early_ray_session(cpus=1, warm_up=lambda: time.sleep(0.2)),
    ):
        raise ValueError("bad text")
    assert starts == ["early Ray", "end, thread lives"]


def test_the_error_of_the_start_is_raised_where_ray_is_needed(
    starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def prepare(address: str, **options: Any) -> Iterator[Any]:
        def fail() -> None:
            raise ResourceError("file size limit too low")

        yield fail

    monkeypatch.setattr(session, "_prepare_session", prepare)
    with (
        session.early_ray_session(cpus=1, warm_up=lambda: starts.append("warm-up")),
        pytest.raises(ResourceError, match="file size limit too low"),
        session.ray_session(cpus=1),
    ):
        pytest.fail("Ray did not start")
    assert starts == []


def test_a_failed_warm_up_is_reported_and_ray_is_used(
    starts: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warm_up() -> None:
        raise ResourceError("Ray had no room within 30 s")

    with session.early_ray_session(cpus=1, warm_up=warm_up), caplog.at_level(logging.WARNING):
        session._early.get().wait(lambda event: None)  # type: ignore[union-attr]
    assert [record.getMessage() for record in caplog.records] == [
        "workers did not start early (Ray had no room within 30 s); they start when they are needed"
    ]


# The workers


def spare_of(needs: WorkerRequirements = NEEDS, engine: EngineSettings = ENGINE) -> SpareWorkers:
    spare = SpareWorkers(needs, options_of(needs, engine))
    spare.group = WorkerGroup(range(needs.num_workers), "a placement group", spare.options, spare=["first", "second"])
    return spare


def test_spare_workers_are_used_once() -> None:
    group = spare_of().take(NEEDS, options_of(NEEDS, ENGINE))
    assert group
    assert group.start(object) == ["first", "second"]
    assert group.spare == []  # the next start, after a worker died, starts new workers


@pytest.mark.parametrize(
    ("needs", "engine"),
    [
        (WorkerRequirements(num_workers=1), ENGINE),
        (WorkerRequirements(num_workers=2, cpus=2), ENGINE),
        (WorkerRequirements(num_workers=2, gpus=1), ENGINE),
        (NEEDS, EngineSettings(cpu_threads=2)),
    ],
)
def test_spare_workers_of_another_training_are_ended(
    needs: WorkerRequirements, engine: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = list[object]()
    module = import_module("ray.util.placement_group")  # ray.util has a function of this name
    monkeypatch.setattr(module, "remove_placement_group", removed.append)
    assert spare_of().take(needs, options_of(needs, engine)) is None
    assert removed == ["a placement group"]  # otherwise the training would wait for its resources


def test_workers_are_offered_inside_the_block_only() -> None:
    spare = spare_of()
    with offer_workers(spare):
        assert placement._offered.get() is spare
    assert placement._offered.get() is None


# The job


@pytest.mark.parametrize(
    ("most_bytes", "overrides", "starts_early"),
    [(48, (), 1), (47, (), 0), (48, ("cluster.ray_address=auto", "cluster.num_workers=1"), 0)],
)
def test_ray_starts_early_for_a_small_text_on_this_machine(
    most_bytes: int, overrides: tuple[str, ...], starts_early: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("A document about nothing. It has two sentences.\n")
    started = list[int]()

    @contextmanager
    def start(needs: WorkerRequirements, *given: Any, **more: Any) -> Iterator[None]:
        started.append(needs.num_workers)
        yield

    monkeypatch.setattr(early_start, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(early_start.launch, "start_workers_early", start)
    flags = JobFlags(
        recipe="bert_base", scale="tiny", data=[str(tmp_path)], output_dir=tmp_path / "out", overrides=overrides
    )
    with early_start.start_early(open_job(flags), "allow"):
        assert len(started) == starts_early


# With Ray


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_uses_workers_that_started_early(tmp_path: Path) -> None:
    import ray

    from orchestration.launch import ray_session, start_workers_early
    from orchestration.launch.worker import Worker

    with start_workers_early(NEEDS, ENGINE, {"MARK": "early"}, cpus=2), ray_session(cpus=2):
        names = {each.name() for each in psutil.Process().children(recursive=True)}
        with placement.place_workers(NEEDS, ENGINE, {"MARK": "early"}) as group:
            (before,) = {len(group.spare)}
            actors = group.start(Worker)
            started = ray.get([actor.start.remote(str(tmp_path), {"MARK": "early"}) for actor in actors])
            assert before == len({each.process.pid for each in started}) == 2
            later = group.start(Worker)
            assert not {actor._actor_id for actor in later} & {actor._actor_id for actor in actors}
    assert not names & {"monitor.py", "log_monitor.py", "dashboard.py"}
    assert not any(psutil.pid_exists(each.process.pid) and each.process.pid != os.getpid() for each in started)
