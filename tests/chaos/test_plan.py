"""`make chaos`: the table and its points, when a fault counts as a hit, and the traces that it must leave."""

import hashlib
import random
import signal
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.chaos import faults
from tests.chaos.command import Command, Missed, marked, new_mark
from tests.chaos.faults import BAD_INPUT, DONE, INTERRUPTED, KILLED, PREEMPTED, RESOURCES, Fault
from tests.chaos.ground import WEIGHTS, Ended, Ground, Store, faults_of, recorded, text
from tests.chaos.plan import TABLE, Point, points
from tests.chaos.play import MOST_TRIES, Outcome, repeat_until_hit, started_s
from tests.chaos.report import percentile, recovery
from tests.chaos.scene import Scene

REQUIRED = {  # faults that the table must have
    *("kill worker", "kill first worker", "kill driver", "kill raylet", "kill head", "SIGSTOP worker", "SIGTERM twice"),
    *("long partition", "disk full", "MLflow locked", "MLflow down", "no memory", "checkpoint flipped", "shard cut"),
}


def test_the_table_has_the_required_faults_and_at_least_sixty_points() -> None:
    assert set(TABLE) >= REQUIRED
    assert len(points()) >= 60
    moments = {moment for _, row in TABLE.values() for moment in row}
    assert moments >= {"starting", "training", "saving", "restarting", "exporting"}


def test_a_seed_determines_the_points_and_their_random_numbers() -> None:
    assert points(70, seed=3) == points(70, seed=3) != points(70, seed=4)
    assert points(5, seed=3) == points(70, seed=3)[:5]
    first = points(1)[0]
    assert first.rng.random() == first.rng.random()
    assert len({point.rng.random() for point in points()}) == len(points())


def test_more_points_than_pairs_are_all_different() -> None:
    pairs = len(points())
    assert len(set(points(2 * pairs + 1))) == 2 * pairs + 1
    assert points(1)[0].drawn(1).random() != points(1)[0].rng.random()
    assert {point.fault for point in points(only="kill head")} == {"kill head"}
    assert points(only="no such fault") == []


def test_processes_are_found_by_their_mark_after_their_parents_have_ended(tmp_path: Path) -> None:
    mark = new_mark()
    words = ["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo said >&2"]
    command = Command(words, {}, tmp_path / "log", mark)
    assert command.wait(20) == 0
    assert command.last_line == "said"
    assert len(marked(mark)) == 1
    command.kill_all(mark)
    assert marked(mark) == []


def test_a_moment_that_does_not_occur_raises_an_error(tmp_path: Path) -> None:
    command = Command(["true"], {}, tmp_path / "log", new_mark())
    with pytest.raises(Missed, match="ended with 0"):
        command.until(lambda: False, 20)


def test_repeated_points_of_a_record_are_detected(tmp_path: Path) -> None:
    line = '{"step": 2, "time": 1.0, "metrics": {"train/loss": 3.0, "perf/mfu": 0.1}}\n'
    (tmp_path / "metrics.jsonl").write_text(line * 2)
    assert recorded(tmp_path) == {"train/loss": [(2, 3.0), (2, 3.0)]}


def test_the_text_is_the_same_each_time() -> None:
    assert text(random.Random(0)) == text(random.Random(0))
    assert percentile([float(value) for value in range(1, 101)], 0.95) == 95.0


# Whether a fault counts as a hit

BEFORE_S, STRUCK_S, AFTER_S = 10.0, 20.0, 30.0
DIED = "WARNING: worker 1 died (SYSTEM_ERROR) after step 12; restarting from the newest checkpoint"
HUNG = "WARNING: runs/bert_base: no worker has made progress for 6 s; saving their stacks"
NOT_SYNCED = "WARNING: MLflow does not accept metrics (database is locked)"


def scene_of(folder: Path, *after: str, before: Sequence[str] = ()) -> Scene:
    """A scene whose command printed the lines `after` after the strike, and the lines `before` before it."""
    command = Command.__new__(Command)
    command.lines = [(BEFORE_S, line) for line in before] + [(AFTER_S, line) for line in after]
    scene = Scene(Ground(folder), folder, mark=0, rng=random.Random(0), commands=[command], struck_s=STRUCK_S)
    (scene.out / "runs" / "bert_base_tiny-0").mkdir(parents=True)
    return scene


def sent(fault: faults.Kill) -> faults.Kill:
    fault.sent = True
    return fault


@pytest.mark.parametrize(
    ("fault", "code", "after", "before", "is_hit"),
    [
        (sent(faults.KillWorker()), DONE, [DIED], [], True),
        (sent(faults.KillWorker()), DONE, [], [DIED], False),
        (sent(faults.KillHead()), DONE, [], [], False),
        (sent(faults.KillHead()), DONE, [], ["logging to MLflow ..."], True),
        (faults.KillWorker(), DONE, [DIED], [], False),
        (faults.KillDriver(), KILLED, [], [], True),
        (faults.KillDriver(), DONE, [], [], False),
        (sent(faults.Terminate()), PREEMPTED, [], [], True),
        (sent(faults.Terminate()), DONE, [], [], False),
        (sent(faults.Interrupt()), INTERRUPTED, [], [], True),
        (sent(faults.Interrupt()), DONE, [], [], False),
        (sent(faults.StopWorker()), DONE, [HUNG], [], True),
        (sent(faults.StopWorker()), DONE, [NOT_SYNCED], [HUNG], False),
        (faults.FullDisk(), DONE, [], [], False),
        (faults.FullDisk(), BAD_INPUT, [], [], True),
        (faults.LimitMemory(), DONE, [], [], False),
        (faults.LimitMemory(), DONE, [DIED], [], True),
        (faults.LimitMemory(), RESOURCES, [], [], True),
        (faults.LockedStore(), DONE, [], [NOT_SYNCED], False),
        (faults.LockedStore(), DONE, [NOT_SYNCED], [], True),
        (faults.Shard(), KILLED, [], [], True),
        (faults.Shard(), DONE, [], [], False),
    ],
)
def test_a_fault_has_hit_if_its_effect_is_visible_after_the_strike(
    fault: Fault, code: int, after: list[str], before: list[str], is_hit: bool, tmp_path: Path
) -> None:
    assert fault.hit(scene_of(tmp_path, *after, before=before), code) is is_hit


def test_a_long_partition_has_hit_if_the_watchdog_ended_the_group(tmp_path: Path) -> None:
    fault = faults.LongPartition()
    fault.is_cut = fault.is_back = True
    assert not fault.hit(
        scene_of(tmp_path / "a", "WARNING: no scores: task source_classification", before=[HUNG]), DONE
    )
    assert fault.hit(scene_of(tmp_path / "b", HUNG), DONE)


def test_a_signal_does_not_reach_a_process_that_has_ended(tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    fault = faults.KillWorker()
    fault.target = psutil.Process(process.pid)
    while fault.target.status() != psutil.STATUS_ZOMBIE:  # until it has ended
        pass
    fault.strike(scene_of(tmp_path))
    assert not fault.sent
    process.wait()
    assert not faults.send_signal(fault.target, signal.SIGKILL)


def test_processes_killed_for_memory_are_counted_in_their_control_group(tmp_path: Path) -> None:
    assert faults.kills_in(tmp_path) == 0
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert faults.kills_in(tmp_path) == 2


def test_a_point_whose_fault_hits_nothing_is_repeated_and_fails_in_the_end() -> None:
    point, calls = Point("kill worker", "training", 0), list[int]()

    def misses(tries: int, until: int) -> Outcome:
        calls.append(tries)
        return Outcome(point, unhit="" if tries == until else "too late")

    passed = repeat_until_hit(lambda tries: misses(tries, until=2))
    assert (passed.tries, passed.faults, calls) == (3, [], [0, 1, 2])
    failed = repeat_until_hit(lambda tries: misses(tries, until=-1))
    assert failed.tries == MOST_TRIES
    assert "hit nothing" in failed.faults[0]
    assert repeat_until_hit(lambda tries: Outcome(point, faults=["left"], unhit="too late")).tries == 1


# The traces that a fault must leave


def test_the_watchdog_must_write_stack_traces_of_each_rank(tmp_path: Path) -> None:
    scene, fault = scene_of(tmp_path, HUNG), faults.StopWorker()
    assert len(list(fault.wrong(scene, DONE))) == 2
    for rank in (0, 1):
        file = scene.run / "stacks" / f"worker-{rank}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text("Thread 0x1\n")
    assert not list(fault.wrong(scene, DONE))


def test_an_out_of_memory_message_must_name_a_micro_batch_that_fits(tmp_path: Path) -> None:
    without = scene_of(
        tmp_path / "a", "sesame: worker 1 ran out of memory, with cluster.engine.micro_batch_tokens 4,096"
    )
    with_one = scene_of(
        tmp_path / "b", "sesame: worker 1 ran out of memory; cluster.engine.micro_batch_tokens 512 would fit"
    )
    for fault in (faults.LimitMemory(), faults.KillForMemoryAtLast()):
        assert list(fault.wrong(without, RESOURCES))
        assert not list(fault.wrong(with_one, RESOURCES))
    assert list(faults.KillForMemory().wrong(scene_of(tmp_path / "c", DIED), DONE))


def test_a_stop_on_a_slow_disk_must_not_lose_the_last_checkpoint(tmp_path: Path) -> None:
    line = "sesame: runs/bert_base: stopped after step 12 without a checkpoint of this step, because workers did not "
    line += "answer"
    assert list(faults.TerminateOnSlowDisk().wrong(scene_of(tmp_path, line), PREEMPTED))


def test_damage_flips_any_single_bit(tmp_path: Path) -> None:
    rng, content = random.Random(0), b"0123456789"
    flips = {
        int.from_bytes(faults.damaged(rng, content, cut=False)) ^ int.from_bytes(content) for _ in range(2_000)
    }  # fmt: skip
    assert flips == {1 << bit for bit in range(80)}
    assert len(faults.damaged(rng, content, cut=True)) < len(content)


def test_damage_must_be_reported(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "sesame: corpora/text/train-0.arrow: is damaged")
    shard = faults.Shard()
    shard.path = scene.out / "train-0.arrow"
    assert shard.seen(scene, BAD_INPUT)
    assert not shard.seen(scene, DONE)
    assert not faults.Checkpoint().seen(scene, DONE)
    (scene.run / "checkpoints" / "broken-step-000000024").mkdir(parents=True)
    assert faults.Checkpoint().seen(scene, DONE)
    assert not list(faults.DamageAtWork().wrong(scene, DONE))
    older = scene_of(tmp_path / "b", "WARNING: step-000000024: a file is missing; looking for an older checkpoint")
    assert faults.Checkpoint().seen(older, DONE)


def test_damage_to_a_checkpoint_is_a_hit_only_if_it_is_the_newest_one(tmp_path: Path) -> None:
    fault = faults.DamageAtWork()
    fault.sent = True
    assert not fault.hit(scene_of(tmp_path / "a", DIED), DONE)
    fault.is_newest = True
    assert fault.hit(scene_of(tmp_path / "b", DIED), DONE)


def test_a_flipped_bit_of_metrics_makes_a_line_invalid(tmp_path: Path) -> None:
    scene, record = scene_of(tmp_path), faults.Record()
    record.before = b'{"step": 2, "time": 1.0, "metrics": {"train/loss": 3.0}}\n' * 3
    for _ in range(100):
        assert not all(map(faults.is_point, record.damaged(scene).split(b"\n")[:-1]))


def test_an_undisturbed_run_must_have_weights_and_metrics(tmp_path: Path) -> None:
    whole = Ended(dict.fromkeys(WEIGHTS, "ab"), {"train/loss": [(2, 1.0)], "eval/loss": [(2, 1.0)]}, frozenset())
    assert not faults_of(whole)
    assert faults_of(replace(whole, weights={}))
    assert faults_of(replace(whole, weights=dict.fromkeys(WEIGHTS, hashlib.sha256(b"").hexdigest())))
    assert faults_of(replace(whole, metrics={}))


def test_a_store_counts_its_runs(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as opened:
        opened.execute("CREATE TABLE runs (run_uuid TEXT)")
        opened.executemany("INSERT INTO runs VALUES (?)", [("a",), ("b",)])
        opened.commit()
    assert Store(tmp_path / "mlflow.db").runs() == 2


def test_recovery_excludes_only_the_start_of_processes(tmp_path: Path) -> None:
    command = scene_of(tmp_path).now
    command.lines = [
        *((1.0, "starting workers ..."), (5.0, "building the model ..."), (9.0, "pretrain: 1/40")),
        *((22.0, "starting workers: workers 2"), (28.0, "building the model ..."), (33.0, "pretrain: 13/40")),
    ]
    assert started_s(command, STRUCK_S) == 6.0
    outcome = Outcome(Point("kill worker", "training", 0), next_step_s=13.0, start_s=6.0)
    slow = Outcome(Point("kill worker", "saving", 0), next_step_s=26.0, start_s=6.0)
    found = recovery([outcome, slow])
    assert found
    assert (found.points, found.after_s, found.beyond_s) == (2, (13.0, 26.0), (7.0, 20.0))
    assert found.is_slow
    assert recovery([replace(outcome, start_s=0.0)]) is None
