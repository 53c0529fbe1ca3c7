"""Out of memory: the error message, and the suggested micro-batch size."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestration import planning
from orchestration.config import load, load_cluster
from orchestration.jobs import advise_on_memory
from orchestration.launch import group as launch
from orchestration.launch import ray_session
from orchestration.launch.out_of_memory import MemoryUse, OutOfMemory, explain_out_of_memory, is_of_memory
from orchestration.tracking import runs as track
from preprocessing.errors import BadInput, ResourceError
from tests.orchestration.launch.test_group import once_at, run_of, start
from tests.orchestration.launch.test_survive import trainers
from tests.training.corpora import mini_run
from tests.training.held_out import with_test_split
from training.specs import EngineSettings

ROOT = Path(__file__).parents[3]
GB = 1e9


def run_with(**machine: Any) -> Any:
    return replace(mini_run(Path("corpus"), Path("run")), engine=EngineSettings(**machine))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of ..."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to "),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("std::bad_alloc"),
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_error_of_every_allocator_is_recognized(error: Exception) -> None:
    assert is_of_memory(error)


@pytest.mark.parametrize("error", [RuntimeError("size mismatch"), OSError(28, "No space left on device"), ValueError()])
def test_other_errors_are_raised_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)), explain_out_of_memory(run_with(), 0, lambda: "step 3"):
        raise error


def test_error_of_sesame_is_raised_unchanged() -> None:
    with pytest.raises(BadInput, match="out of memory"), explain_out_of_memory(run_with(), 0, lambda: "step 3"):
        raise BadInput("a file named out of memory")


def test_gpu_out_of_memory_is_one_line_and_can_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 71 * GB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 * GB, 80 * GB))
    run = run_with(device="cuda", precision="bf16", micro_batch_tokens=65_536)
    with pytest.raises(OutOfMemory) as raised, explain_out_of_memory(run, 3, lambda: "step 12"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 10.00 GiB. GPU 0 has a total capacity of")
    error = pickle.loads(pickle.dumps(raised.value))
    assert str(error) == (
        "run: worker 3 ran out of memory in step 12: it used 71.0 GB of 80.0 GB and requested 10.7 GB more, with "
        "cluster.engine.micro_batch_tokens 65,536"
    )
    assert (error.used, error.limit, error.exit_code) == (71 * GB + 10 * 2**30, 80 * GB, 4)


PROGRAM = """
import resource, sys
from dataclasses import replace
from pathlib import Path
import psutil, torch
from orchestration.launch.out_of_memory import OutOfMemory, explain_out_of_memory
from tests.training.corpora import mini_corpus, mini_run
from training.engines import LocalEngine
from training.loop import pretrain
from training.formats import build_model
from training.specs import EngineSettings, Phase
folder = Path(sys.argv[1])
torch.set_num_threads(1)
run = mini_run(mini_corpus(folder / "corpus"), folder / "run",
               phases=(Phase(seq_length=48, global_batch_size=4000, steps=2),),
               engine=EngineSettings(micro_batch_tokens=48 * 4000), eval_every=0)
run = replace(run, model=replace(run.model, hidden_size=256))
engine = LocalEngine(build_model(run), run.optimizer, run.engine)
most = psutil.Process().memory_info().vms + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    with explain_out_of_memory(run, 0, lambda: "first step"):
        pretrain(run, engine, lambda *_: None)
except OutOfMemory as error:
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    print(error.limit == most, error.used > most - (400 << 20), error)
"""


@pytest.mark.slow
def test_address_space_limit_is_reported_with_usage(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert found.stdout.startswith("True True "), found.stderr[-2000:]
    assert "worker 0 ran out of memory in first step: it used " in found.stdout
    assert "with cluster.engine.micro_batch_tokens 192,000" in found.stdout


# Suggested micro-batch size


def on_one_gpu(micro_tokens: int) -> Any:
    return load_cluster("one_gpu", [f"cluster.engine.micro_batch_tokens={micro_tokens}", "cluster.gpu_type=h100"])


def suggested_tokens(hint: str) -> int:
    return int(hint.rpartition("micro_batch_tokens=")[2].split(";")[0])


def test_suggestion_is_the_largest_micro_batch_that_fits() -> None:
    recipe, cluster = load("bert_base"), on_one_gpu(512 * 1024)
    demand = planning.workload_of(recipe)
    length = demand.longest.seq_length

    def planned(tokens: int) -> float:
        one = on_one_gpu(tokens)
        layout = planning.ParallelLayout(zero=2, rows=tokens // length, precision=one.engine.precision)
        return planning.device_memory(demand, layout, length).peak

    fits = suggested_tokens(planning.suggest_settings(recipe, cluster, 10 * GB, 12 * GB))
    assert planned(fits) <= 0.95 * 12 * GB < planned(fits + length)
    assert fits % length == 0
    less = suggested_tokens(planning.suggest_settings(recipe, cluster, planned(256 * length) + 2 * GB, 12 * GB))
    assert planned(less) <= 0.95 * 12 * GB - 2 * GB < planned(less + length)  # 2 GB that the plan does not include


def test_suggestion_is_half_if_the_plan_expected_the_failed_size_to_fit() -> None:
    assert (
        suggested_tokens(planning.suggest_settings(load("bert_base"), on_one_gpu(32 * 512), 5 * GB, 80 * GB))
        == 16 * 512
    )


def test_other_keys_are_suggested_if_no_micro_batch_fits() -> None:
    message = planning.suggest_settings(load("gpt2"), on_one_gpu(1024), 3 * GB, 2 * GB)
    assert "not even one sequence of 1024 tokens" in message
    assert "activation_checkpointing=full" in message


def test_error_suggests_a_size_and_how_to_resume() -> None:
    recipe, cluster = load("bert_base"), on_one_gpu(512 * 1024)
    with pytest.raises(ResourceError) as raised, advise_on_memory(recipe, cluster):
        raise OutOfMemory("run: worker 3 ran out of memory", 10 * GB, 12 * GB)
    message = str(raised.value)
    assert message.startswith("run: worker 3 ran out of memory; ")
    assert "would fit: set cluster.engine.micro_batch_tokens=" in message
    assert message.endswith("then repeat the command to resume from the newest checkpoint")
    assert raised.value.exit_code == 4


def test_error_of_a_chosen_micro_batch_names_a_number_instead_of_auto() -> None:
    """A command with `auto` would choose the same number again."""
    recipe, cluster = load("bert_base"), planning.resolve_micro_batch(load("bert_base"), load_cluster("one_gpu"))[0]
    with pytest.raises(ResourceError) as raised, advise_on_memory(recipe, cluster, is_chosen=True):
        raise OutOfMemory("run: worker 0 ran out of memory", 82 * GB, 80 * GB)
    message = str(raised.value)
    assert "; `auto` chose this number by the plan, which counts too little memory here; " in message
    assert suggested_tokens(message) < cluster.engine.micro_tokens


# Killed by the kernel


def test_memory_is_full_near_its_limit() -> None:
    assert MemoryUse(1, 95, 100).is_full
    assert not MemoryUse(1, 85, 100).is_full
    assert not MemoryUse().is_full
    now = MemoryUse.now()
    assert 0 < now.process < now.limit
    assert 0 < now.machine <= now.limit


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group limited to 1 MB; the test is skipped if no group can be created."""
    group = Path(f"/sys/fs/cgroup/memory/sesame-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(1 << 20))
    except OSError as error:
        pytest.skip(f"cannot create a memory control group: {error}")
    yield group
    group.rmdir()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_worker_killed_by_the_kernel_for_memory_is_reported(little_memory: Path, tmp_path: Path) -> None:
    if "oom_kill " not in Path("/proc/vmstat").read_text(encoding="utf-8"):
        pytest.skip("the kernel does not report how many processes it kills")
    run, place = run_of(with_test_split(tmp_path / "corpus"), tmp_path / "run"), track.tracking_store(tmp_path / "out")
    squeeze = once_at(10, lambda: (little_memory / "cgroup.procs").write_text(str(trainers()[0].pid)))
    with (
        ray_session(cpus=1),
        pytest.raises(OutOfMemory, match=r"died \(the kernel killed it to free memory") as e,
    ):
        start(run, place, 1, restart_policy=launch.RestartPolicy(max_restarts=0), on_progress=squeeze)
    assert "with cluster.engine.micro_batch_tokens 16,384" in str(e.value)
    assert e.value.limit > 0
