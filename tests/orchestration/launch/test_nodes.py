"""A cluster with several nodes: a lost node, a new node, and the allowed number of workers."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestration.launch import group as launch
from orchestration.launch import nodes, ray_session
from orchestration.launch.address import bind_to_loopback
from orchestration.launch.nodes import StableSince, WorkerRequirements
from orchestration.launch.session import PATIENCE
from orchestration.tracking import runs as track
from preprocessing.errors import ResourceError
from preprocessing.order import rank_slice
from tests.orchestration.launch.mini_group import STEPS, losses, mlflow_run, once_at, run_of, start, trainers
from tests.training.held_out import with_test_split
from training.data import num_micro
from training.run import Run
from training.specs import EngineSettings, Phase


@dataclass
class LocalCluster:
    """A local Ray cluster: a head without cores, and nodes with one core each."""

    cluster: Any
    nodes: list[Any] = field(default_factory=list)

    def add(self) -> None:
        self.nodes.append(self.cluster.add_node(num_cpus=1, **NODE_OPTIONS))

    def kill(self) -> None:
        """Kill the raylet of the newest node with SIGKILL, and its workers, which would continue for seconds."""
        raylet = psutil.Process(self.nodes.pop().all_processes["raylet"][0].process.pid)
        for process in (raylet, *raylet.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()


NODE_OPTIONS = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 100_000_000}


@pytest.fixture(scope="module")
def local_cluster() -> Iterator[LocalCluster]:
    """A cluster with two nodes, and a Ray session connected to it."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch, bind_to_loopback():
        for name, seconds in PATIENCE.items():
            patch.setenv(name, str(seconds))
        made = LocalCluster(Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **NODE_OPTIONS}))
        try:
            made.add()
            made.add()
            with ray_session(made.cluster.address, cpus=1):
                yield made
        finally:
            made.cluster.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_test_split(tmp_path_factory.mktemp("text") / "corpus")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> track.TrackingStore:
    return track.tracking_store(tmp_path_factory.mktemp("out"))


def slow_run(corpus: Path, folder: Path) -> Run:
    """Return a run whose steps are long enough for a node to join meanwhile."""
    trunk = replace(run_of(corpus, folder).model, hidden_size=64)
    return run_of(
        corpus, folder, model=trunk, phases=(Phase(seq_length=48, global_batch_size=128, steps=STEPS),), eval_every=0
    )


@pytest.fixture(scope="module")
def reference_losses(
    local_cluster: LocalCluster, corpus: Path, place: track.TrackingStore, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, float]:
    """The losses of an undisturbed run on two nodes."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    start(slow_run(corpus, folder), place)
    return dict(losses(folder))


@contextmanager
def suspended_workers() -> Iterator[None]:
    """Suspend all workers inside the block."""
    workers = trainers()
    for worker in workers:
        worker.suspend()
    try:
        yield
    finally:
        for worker in workers:
            worker.resume()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_run_shrinks_with_a_lost_node_and_grows_with_a_new_one(
    local_cluster: LocalCluster,
    reference_losses: dict[int, float],
    corpus: Path,
    place: track.TrackingStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "ROOM_S", 1.0)
    groups: list[int] = []

    def add() -> None:
        with suspended_workers():
            local_cluster.add()

    kill, come = once_at(20, local_cluster.kill), once_at(17, add)

    def report(event: Mapping[str, Any]) -> None:
        if event.get("workers", 0) not in [0, *groups[-1:]]:
            groups.append(event["workers"])
        kill(event)
        if groups == [2, 1]:
            come(event)

    run = slow_run(corpus, tmp_path)
    result = start(run, place, min_workers=1, restart_policy=launch.RestartPolicy(grow_s=1.0), on_progress=report)
    assert result.finished
    assert groups == [2, 1, 2]
    assert dict(losses(tmp_path)) == pytest.approx(reference_losses, rel=1e-6)
    assert [step for step, _ in losses(tmp_path)] == list(range(1, STEPS + 1))
    tags = mlflow_run(place, tmp_path).data.tags
    assert tags["num_workers"] == "2"
    assert re.fullmatch(r"2 from step 0, 1 from step \d+, 2 from step \d+", tags["num_workers_history"])
    assert tags["restarts"] in ("1", "2")  # Ray may report a worker as dead before it reports its node


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_loss_of_a_required_node_ends_the_run_with_a_message(
    local_cluster: LocalCluster,
    corpus: Path,
    place: track.TrackingStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "NODES_S", 5.0)
    with pytest.raises(ResourceError, match="no room for 2 workers of 1 CPU: Ray has "):
        start(slow_run(corpus, tmp_path), place, min_workers=0, on_progress=once_at(20, local_cluster.kill))
    local_cluster.add()
    assert start(slow_run(corpus, tmp_path), place).finished


def test_value_counts_as_stable_until_it_changes() -> None:
    steady = StableSince()
    assert [steady.stable_s(value, now_s) for now_s, value in enumerate([2, 2, 2, 3, 3, 0, 0, 3])] == [
        0, 1, 2, 0, 1, 0, 0, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("requirements", "free", "allowed"),
    [
        (WorkerRequirements(num_workers=4, min_workers=1), 3, 3),
        (WorkerRequirements(num_workers=4, min_workers=1), 9, 4),
        (WorkerRequirements(num_workers=4, min_workers=0), 3, 0),
        (WorkerRequirements(num_workers=4, min_workers=4), 3, 0),
        (WorkerRequirements(num_workers=8, min_workers=1, unit=4), 7, 4),
        (WorkerRequirements(num_workers=8, min_workers=1, unit=4), 3, 0),
        (WorkerRequirements(num_workers=8, min_workers=5, unit=4), 7, 0),
    ],
)
def test_allowed_workers_are_a_multiple_of_the_unit_and_at_least_the_minimum(
    requirements: WorkerRequirements, free: int, allowed: int
) -> None:
    assert requirements.num_allowed(free) == allowed


@pytest.mark.parametrize(
    ("free", "fit"),
    [([{"CPU": 4.0}], 0), ([{"CPU": 4.0, "GPU": 4.0}], 2), ([{"CPU": 4.0, "GPU": 1.0}, {"CPU": 3.0, "GPU": 8.0}], 2)],
)
def test_worker_must_fit_on_one_node(free: list[dict[str, float]], fit: int) -> None:
    assert WorkerRequirements(num_workers=8, cpus=2, gpus=1).count_fitting(free) == fit


@pytest.mark.parametrize(
    ("machine", "unit"),
    [
        (EngineSettings(), 1),
        (EngineSettings(tensor_parallel_size=2, sequence_parallel_size=3), 6),
        (EngineSettings(zero_stage=3, deepspeed={"zero_optimization": {"zero_hpz_partition_size": 4}}), 4),
    ],
)
def test_worker_unit_is_the_product_of_the_sharing_degrees(machine: EngineSettings, unit: int) -> None:
    assert machine.workers_unit == unit


@pytest.mark.parametrize("batch", [1, 7, 9, 256])
@pytest.mark.parametrize("micro_rows", [1, 3, 100])
def test_any_number_of_workers_can_share_a_batch(batch: int, micro_rows: int) -> None:
    for world in range(1, batch + 1):
        shares = [len(range(batch)[rank_slice(batch, rank, world)]) for rank in range(world)]
        assert sum(shares) == batch
        assert num_micro(batch, micro_rows, world) <= min(shares)  # no micro-batch is empty
