"""The table of `make chaos`: what is drawn from it, and what must be in it."""

import random
from pathlib import Path

import pytest

from tests.chaos.command import Command, Missed, marked, new_mark
from tests.chaos.ground import recorded, text
from tests.chaos.plan import TABLE, points
from tests.chaos.report import percentile

ASKED = {  # by the issue: each of them while training, saving, restarting, exporting, as far as it can be met there
    *("kill worker", "kill first worker", "kill driver", "kill raylet", "kill head", "SIGSTOP worker", "SIGTERM twice"),
    *("long partition", "disk full", "MLflow locked", "MLflow down", "no memory", "checkpoint flipped", "shard cut"),
}


def test_the_table_has_what_was_asked_for_and_at_least_sixty_points() -> None:
    assert set(TABLE) >= ASKED
    assert len(points()) >= 60
    moments = {moment for _, row in TABLE.values() for moment in row}
    assert moments >= {"starting", "training", "saving", "restarting", "exporting"}


def test_a_seed_says_the_points_and_what_is_random_in_them() -> None:
    assert points(70, seed=3) == points(70, seed=3) != points(70, seed=4)
    assert points(5, seed=3) == points(70, seed=3)[:5]
    first = points(1)[0]
    assert first.rng.random() == first.rng.random()
    assert len({point.rng.random() for point in points()}) == len(points())


def test_more_points_than_pairs_are_other_points() -> None:
    pairs = len(points())
    assert len(set(points(2 * pairs + 1))) == 2 * pairs + 1
    assert {point.fault for point in points(only="kill head")} == {"kill head"}
    assert points(only="no such fault") == []


def test_processes_are_known_by_their_mark_after_all_above_them_are_gone(tmp_path: Path) -> None:
    mark = new_mark()
    words = ["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo said >&2"]
    command = Command(words, {}, tmp_path / "log", mark)
    assert command.ended(20) == 0
    assert command.last_line == "said"
    assert len(marked(mark)) == 1
    command.kill_all(mark)
    assert marked(mark) == []


def test_a_moment_that_does_not_come_is_missed(tmp_path: Path) -> None:
    command = Command(["true"], {}, tmp_path / "log", new_mark())
    with pytest.raises(Missed, match="ended with 0"):
        command.until(lambda: False, 20)


def test_repeated_points_of_a_record_are_seen(tmp_path: Path) -> None:
    line = '{"step": 2, "time": 1.0, "metrics": {"train/loss": 3.0, "perf/mfu": 0.1}}\n'
    (tmp_path / "metrics.jsonl").write_text(line * 2)
    assert recorded(tmp_path) == {"train/loss": [(2, 3.0), (2, 3.0)]}


def test_the_text_is_the_same_each_time() -> None:
    assert text(random.Random(0)) == text(random.Random(0))
    assert percentile([float(value) for value in range(1, 101)], 0.95) == 95.0
