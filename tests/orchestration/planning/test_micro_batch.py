"""`micro_batch_tokens: auto`: the chosen number, and what a user reads about it."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from orchestration import planning
from orchestration.cli import main
from orchestration.config import Cluster, Recipe, load, load_cluster, to_yaml
from orchestration.jobs import choose_micro_batch, micro_batch
from orchestration.planning import DEVICES, devices, workload_of
from orchestration.planning.layout import layout_of
from orchestration.planning.micro_batch import ROOM, count_useful_sequences
from orchestration.planning.search import memory_ratio, peak_on
from preprocessing.errors import BadInput
from preprocessing.limits import MemoryLimit

AUTO = "cluster.engine.micro_batch_tokens=auto"


@dataclass(frozen=True)
class GivenJob:
    """The attributes of a job that determine its micro-batch."""

    recipe: Recipe
    cluster: Cluster
    plan: SimpleNamespace


def on_gpu(gpu: str, *keys: str, cluster: str = "one_gpu") -> Cluster:
    return load_cluster(cluster, [AUTO, f"cluster.gpu_type={gpu}", *keys])


def chosen(recipe: str, cluster: Cluster, *overrides: str, recorded: int = 0) -> int:
    found = planning.resolve_micro_batch(load(recipe, overrides), cluster, recorded=recorded)[0]
    assert isinstance(found.engine.micro_batch_tokens, int)
    return found.engine.micro_batch_tokens


@pytest.mark.parametrize(
    ("recipe", "gpu"), [("gpt2", "l4"), ("gpt2", "h100"), ("bert_large", "a100_40gb"), ("t5_base", "l4")]
)
def test_largest_micro_batch_with_room_is_chosen(recipe: str, gpu: str) -> None:
    demand, device = workload_of(load(recipe)), DEVICES[gpu]
    one = demand.row_tokens(demand.longest.seq_length)
    tokens = chosen(recipe, on_gpu(gpu))
    layout = layout_of(on_gpu(gpu).engine, 1, one, demand.longest.global_batch_size)

    def fill(number: int) -> float:
        return memory_ratio(peak_on(demand, replace(layout, micro_tokens=number), device)[1], device)

    assert tokens % one == 0
    assert fill(tokens) <= ROOM
    assert fill(tokens + one) > ROOM or tokens == one * count_useful_sequences(demand, layout, device)


def test_micro_batch_is_no_larger_than_a_batch() -> None:
    """A lone GPU has room for one more sequence, because its last sequences are filler."""
    batch = (
        "phases=[{seq_length: 128, global_batch_size: 64, steps: 9}, {seq_length: 512, global_batch_size: 8, steps: 9}]"
    )
    keys = (batch, "optimizer.warmup_steps=2")
    assert chosen("bert_base", on_gpu("h100"), *keys) == 64 * 128 + 512
    assert chosen("bert_base", on_gpu("h100", cluster="8xh100"), *keys) == 1_024  # 8 sequences of 128 tokens


def test_one_sequence_is_chosen_if_less_fits() -> None:
    cluster = on_gpu("l4")
    assert chosen("gpt3_175b", cluster) == 2_048
    with pytest.raises(planning.run_estimate.ResourceError, match="each device needs"):
        planning.refuse_what_does_not_fit(load("gpt3_175b"), cluster)


def test_pipeline_gets_several_micro_batches_for_each_stage() -> None:
    cluster = on_gpu("h100", "cluster.engine.pipeline_parallel_size=4", "cluster.engine.zero_stage=1", cluster="8xh100")
    assert chosen("gpt2", cluster) == 512 // 2 // 16 * 1_024


def test_cpu_gets_its_share_of_the_host_and_at_most_4096(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = load_cluster("local", [AUTO, "cluster.num_workers=1"])
    found = []
    for memory in (1e12, 8e9, 1e9):
        limit = MemoryLimit(memory, 0.0, "")
        monkeypatch.setattr(devices.limits, "memory", lambda limit=limit: limit)
        found.append(chosen("bert_base", cluster))
    assert found[::2] == [4_096, 512]
    assert 512 < found[1] < 4_096


def test_recorded_number_is_kept_while_it_fits() -> None:
    assert chosen("gpt2", on_gpu("h100"), recorded=8_192) == 8_192
    assert chosen("gpt2", on_gpu("h100"), recorded=1 << 24) == chosen("gpt2", on_gpu("h100"))
    assert chosen("gpt2", on_gpu("h100"), recorded=512) == chosen("gpt2", on_gpu("h100"))  # less than a sequence


@pytest.mark.parametrize(
    ("resume", "has_saved", "keys", "expected"),
    [
        ("allow", True, {}, 8_192),
        ("allow", True, {"init_timeout_seconds": 99}, 8_192),
        ("never", True, {}, 0),
        ("allow", False, {}, 0),
        ("allow", True, {"precision": "fp32"}, 0),
    ],
)
def test_run_that_resumes_keeps_its_number(
    resume: str, has_saved: bool, keys: dict[str, Any], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = on_gpu("h100")
    stage = SimpleNamespace(has_saved=has_saved, folder="run")
    before = SimpleNamespace(engine=replace(cluster.engine, micro_batch_tokens=8_192, **keys))
    monkeypatch.setattr(micro_batch, "load_stored_run", lambda folder: before)
    job: Any = GivenJob(load("gpt2"), cluster, SimpleNamespace(run=stage))
    new, (line,) = choose_micro_batch(job, resume)
    found = new.cluster.engine.micro_batch_tokens
    assert (found == 8_192) == ("as when the run began" in line) == bool(expected)


def test_number_is_printed_with_the_planned_memory() -> None:
    cluster = on_gpu("h100")
    tokens = f"{chosen('gpt2', cluster):,}"
    (line, *_) = planning.refuse_what_does_not_fit(load("gpt2"), cluster)
    assert line.startswith(f"micro_batch_tokens: auto -> {tokens} (")
    assert line.endswith(" of 80.0 GB by the plan)")
    assert line in planning.estimate_run(load("gpt2"), cluster).notes
    assert f"micro-batch {int(tokens.replace(',', '')) // 1_024}" in planning.describe_layout(load("gpt2"), cluster)


def test_number_stays_without_auto() -> None:
    cluster = load_cluster("8xh100")
    assert planning.resolve_micro_batch(load("gpt2"), cluster) == (cluster, [])


def test_auto_is_written_as_it_is_read() -> None:
    cluster = load_cluster("one_gpu")
    assert cluster.engine.micro_batch_tokens == "auto"
    assert cluster.engine.micro_tokens == 65_536  # of evaluations and fine-tuning
    assert "micro_batch_tokens: auto" in to_yaml(cluster)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("big", "got 'big', expected auto or an integer; see `sesame keys cluster.engine.micro_batch_tokens`"),
        ("atuo", "got 'atuo', expected auto or an integer; did you mean auto?"),
        ("1.5", "got 1.5, expected auto or an integer; see `sesame keys cluster.engine.micro_batch_tokens`"),
        ("0", "got 0, expected auto, or at least 1 token; see `sesame keys cluster.engine.micro_batch_tokens`"),
    ],
)
def test_bad_value_gives_one_line(value: str, message: str) -> None:
    key = "cluster.engine.micro_batch_tokens"
    with pytest.raises(BadInput) as raised:
        load_cluster("local", [f"{key}={value}"])
    assert str(raised.value) == f"override {key}={value}: invalid {key}: {message}"
    assert raised.value.exit_code == 2


def test_keys_show_both_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "micro_batch_tokens"]) == 0
    assert "integer | auto" in capsys.readouterr().out
