"""Parallel layouts: memory of devices and hosts in every phase, and hints that give a working cluster file."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from orchestration import planning
from orchestration.cli import main
from orchestration.config import Cluster, Recipe, check, list_names, load, load_cluster
from orchestration.planning import DEVICES, ParallelLayout, devices, run_estimate, workload_of
from orchestration.planning.layout import layout_of
from orchestration.planning.search import REFUSED, find_smallest_layout, layout_in_phase, memory_ratio, peak_memory
from orchestration.planning.timing import DISK, communication_volume, micro_batches, step_seconds
from preprocessing.collate import collate_unpadded
from preprocessing.errors import BadInput, ResourceError
from preprocessing.limits import MemoryLimit
from training.data import Loader
from training.specs import EngineSettings, Phase

TWO_SIDED = [name for name in list_names("recipes") if load(name).objective.two_sided]
SHORT_AND_LONG = (
    "phases=[{seq_length: 128, global_batch_size: 4096, steps: 900}, "
    "{seq_length: 512, global_batch_size: 8, steps: 100}]",
    "optimizer.warmup_steps=10",
)


@pytest.mark.parametrize(
    ("recipe", "cluster", "keys"),
    [
        ("gpt3_175b", "1024xh100", ["tensor_parallel_size=16", "micro_batch_tokens=999999999"]),
        ("bert_base", "local", ["tensor_parallel_size=4", "micro_batch_tokens=9999999"]),
    ],
)
def test_memory_is_checked_despite_other_unusual_settings(recipe: str, cluster: str, keys: list[str]) -> None:
    given = [f"cluster.engine.{key}" for key in keys] + (["cluster.num_workers=4"] if cluster == "local" else [])
    with pytest.raises(ResourceError, match="each device needs"):
        planning.refuse_what_does_not_fit(load(recipe), load_cluster(cluster, given))


# Sequences


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ["bert_base", *TWO_SIDED])
def test_planned_micro_batch_has_the_sequences_of_the_loader(name: str) -> None:
    demand = workload_of(load(name))
    phase = Phase(seq_length=64, global_batch_size=48, steps=1)
    machine = EngineSettings(micro_batch_tokens=10 * 64)
    row = {name: np.arange(64) for name in ("input_ids", "token_type_ids", "labels")}
    if demand.recipe.model.reads_source:
        row |= {"source_input_ids": np.arange(64)}
    loader = Loader({}, (phase,), machine, pad=0, rank=0, world=2)
    batches = loader._micro(collate_unpadded([row] * 20), 64, 40)
    rows = demand.micro_rows(machine.micro_tokens, phase, 2)
    assert rows == len(batches[0]["lengths"]) == (5 if name in TWO_SIDED else 10)
    layout = layout_of(machine, 2, demand.row_tokens(64), 48)
    assert (layout.rows, layout_in_phase(layout, demand, phase).rows) == (rows, rows)


def test_t5_sequences_count_twice_in_a_micro_batch() -> None:
    demand, cluster = workload_of(load("t5_base")), load_cluster("8xh100")
    length = demand.longest.seq_length
    own = planning.estimate_run(demand.recipe, cluster).own.choice.layout
    assert own.rows == min(cluster.engine.micro_tokens // (2 * length), demand.longest.global_batch_size // 8)
    fits = planning.suggest_settings(demand.recipe, load_cluster("one_gpu"), 90e9, 80e9)
    assert int(fits.rpartition("micro_batch_tokens=")[2].split(";")[0]) % (2 * length) == 0


def test_each_phase_has_its_own_micro_batch_and_the_largest_memory_counts() -> None:
    recipe = load("bert_base", SHORT_AND_LONG)
    own = planning.estimate_run(recipe, load_cluster("8xh100")).own
    demand, machine = workload_of(recipe), load_cluster("8xh100").engine
    layout = layout_of(machine, 8, 512, 8)
    rows = [layout_in_phase(layout, demand, phase).rows for phase in recipe.phases]
    assert rows == [512, 1]
    assert own.choice.layout.rows == 512
    alone = planning.device_memory(demand, replace(layout, rows=512), 128, gpu_memory=80e9)
    assert own.choice.memory.peak == alone.peak > 4 * planning.device_memory(demand, layout, 512).peak
    assert [
        micro_batches(layout_in_phase(layout, demand, phase), phase.global_batch_size) for phase in recipe.phases
    ] == [
        1,
        1,
    ]
    best = planning.find_best_layouts(demand, DEVICES["h100"], 8)
    assert max(choice.layout.rows for choice in best) > 8  # the small batch of one phase does not limit the other


# Host memory


def test_offloaded_memory_must_fit_into_the_host() -> None:
    demand = workload_of(load("mt_nlg_530b"))
    layout = ParallelLayout(data=32, zero=3, checkpointing="full", offload=True)
    _, needed = peak_memory(demand, layout, cuda=True)
    device = DEVICES["h100"]
    assert needed.peak < device.memory
    assert needed.host > device.host
    assert not planning.run_estimate.has_room(needed, device)
    found = find_smallest_layout(demand, lambda _: device)
    assert found
    assert found.memory.host <= 0.95 * device.host
    assert all(
        one.memory.host <= 0.95 * device.host for one in planning.find_best_layouts(demand, device, 256, count=99)
    )


def test_too_small_host_is_refused_with_the_required_memory(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["zero_stage=3", "activation_checkpointing=full", "offload_optimizer=cpu", "micro_batch_tokens=2048"]
    assert main(["check", "gpt3_175b", "--cluster", "8xh100", *(f"cluster.engine.{key}" for key in given)]) == 4
    message = capsys.readouterr().err
    assert "the host of 8 devices needs 3." in message
    assert "hosts of h100 have 2.0 TB" in message
    assert main(["plan", "gpt3_175b", "--cluster", "8xh100", *(f"cluster.engine.{key}" for key in given)]) == 4
    assert "host of 8 devices" in capsys.readouterr().out


def test_nvme_offload_uses_no_host_memory_and_slows_the_update() -> None:
    demand, device = workload_of(load("gpt2")), DEVICES["h100"]
    to_host = ParallelLayout(data=8, zero=3, offload=True, offload_parameters=True)
    to_disk = replace(to_host, optimizer_on_disk=True, parameters_on_disk=True)
    host, disk = (planning.device_memory(demand, one, 1024) for one in (to_host, to_disk))
    owned = demand.parameters / 8
    assert disk.disk == pytest.approx((4 + 8 + 2) * owned)
    assert disk.host == pytest.approx(host.host - disk.disk)
    assert host.disk == 0
    assert disk.peak == host.peak
    slower = (
        step_seconds(demand, to_disk, device, 1024, 512).update
        - step_seconds(demand, to_host, device, 1024, 512).update
    )
    assert slower == pytest.approx((2 * 12 + 2) * owned / (DISK / 8))
    machine = EngineSettings(
        device="cuda", precision="bf16", zero_stage=3, offload_optimizer="nvme", nvme_path="/local", offload_param="cpu"
    )
    own = layout_of(machine, 8, 1024, 512)
    assert (own.optimizer_on_disk, own.parameters_on_disk) == (True, False)


# Hints


HPZ = "zero_optimization.zero_hpz_partition_size"
CLUSTERS: list[tuple[str, list[str]]] = [
    ("2240xa100", ["gpu_type=v100", "engine.precision=fp32"]),
    ("2240xa100", ["gpu_type=a100_40gb", "engine.micro_batch_tokens=4194304"]),
    ("1024xh100", ["engine.micro_batch_tokens=8388608", "min_workers=1024"]),
    ("8xh100", ["engine.overlap_comm=true", "engine.micro_batch_tokens=8388608", "sample_prompts=[A]"]),
    ("8xh100", ["engine.torch_compile=true", "engine.micro_batch_tokens=8388608"]),
    ("8xh100", ["engine.precision=fp16", "gpu_type=v100", "engine.micro_batch_tokens=8388608"]),
    ("8xh100", ["engine.sequence_parallel_size=8", "engine.micro_batch_tokens=8388608"]),
    ("1024xh100", [f"engine.deepspeed.{HPZ}=8", "engine.micro_batch_tokens=8388608"]),
    ("one_gpu", ["gpu_type=l4", "engine.micro_batch_tokens=8388608"]),
    ("cpu_cluster", ["engine.micro_batch_tokens=8388608"]),
    ("local", ["num_workers=2", "engine.zero_stage=3", "engine.micro_batch_tokens=8388608"]),
]


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", ["mt_nlg_530b", "gpt3_175b", "t5_11b", "bert_base", "albert_xxlarge", "xlnet_large"])
@pytest.mark.parametrize("number", range(len(CLUSTERS)))
def test_hint_gives_a_cluster_that_fits(name: str, number: int) -> None:
    base, keys = CLUSTERS[number]
    given, recipe = [f"cluster.{key}" for key in keys], load(name)
    cluster = load_cluster(base, given)
    message = _refused(recipe, cluster)
    hint = re.split(
        r"the smallest layout that fits: |the fastest layout on (?:these \d+ devices|this device): ", message
    )
    hint = hint[1].split() if len(hint) > 1 else []
    assert hint or not message or "no number " in message
    hinted = load_cluster(base, given + hint)
    assert not hint or (check(recipe, hinted), _refused(recipe, hinted)) == ([], "")


def _refused(recipe: Recipe, cluster: Cluster) -> str:
    try:
        planning.refuse_what_does_not_fit(recipe, cluster)
    except ResourceError as error:
        return str(error)
    return ""


def test_hint_overrides_the_settings_of_the_cluster_file() -> None:
    cluster = load_cluster("2240xa100", ["cluster.gpu_type=v100", "cluster.engine.precision=fp32"])
    keys = set(ParallelLayout(data=4, zero=3, micro_tokens=2048, precision="fp32", offload=True).overrides(cluster))
    assert keys == {
        "cluster.num_workers=4",
        "cluster.engine.zero_stage=3",
        "cluster.engine.tensor_parallel_size=1",
        "cluster.engine.pipeline_parallel_size=1",
        "cluster.engine.activation_checkpointing=none",
        "cluster.engine.offload_optimizer=cpu",
    }


def test_cpu_workers_are_limited_by_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_estimate, "cores", lambda: 2)
    monkeypatch.setattr(devices, "cores", lambda: 2)
    with pytest.raises(ResourceError, match=r"no number of devices on this machine is enough; with h100 GPUs use \d+"):
        planning.refuse_what_does_not_fit(load("mt_nlg_530b"), load_cluster("local"))
    monkeypatch.setattr("preprocessing.limits.memory", lambda: MemoryLimit(8e9, 8e9))
    one, two = (run_estimate.devices_of(load_cluster("local"), workers, timed=False)[0].memory for workers in (1, 4))
    assert (one, two) == (4e9, 2e9)


# Devices


def test_float32_uses_its_own_peak_speed() -> None:
    demand, device = workload_of(load("gpt2")), DEVICES["a100"]
    half, single = (
        step_seconds(demand, ParallelLayout(precision=kind), device, 1024, 64).products for kind in ("bf16", "fp32")
    )
    assert single / half == pytest.approx(312 / 19.5)
    given = ["cluster.gpu_type=a100", "cluster.engine.precision=fp32"]
    own = planning.estimate_run(demand.recipe, load_cluster("one_gpu", given)).own
    assert 0.3 < own.mfu < 1


@pytest.mark.parametrize("function", [planning.estimate_run, planning.refuse_what_does_not_fit])
def test_unsupported_precision_is_refused(function: Any) -> None:
    with pytest.raises(BadInput, match="precision is bf16, which v100 does not support; set "):
        function(load("gpt2"), load_cluster("8xh100", ["cluster.gpu_type=v100"]))
    with pytest.raises(BadInput, match=r"invalid cluster\.gpu_type: got 'tpu_v3', expected one of v100_16gb"):
        function(load("gpt2"), load_cluster("8xh100", ["cluster.gpu_type=tpu_v3"]))


def test_proposed_layouts_keep_the_precision() -> None:
    given = ["cluster.gpu_type=v100", "cluster.engine.precision=fp16"]
    found = planning.estimate_run(load("gpt2"), load_cluster("8xh100", given))
    assert {one.choice.layout.precision for one in found.better} == {"fp16"}
    assert {one.choice.layout.pipeline for one in found.better} == {1}  # pipeline parallelism does not support fp16
    assert "fp16" in found.own.choice.layout.describe()


@pytest.mark.parametrize(
    ("message", "similar", "is_assumed"),
    [
        ("Tesla V100-SXM2-16GB, 16384", "v100_16gb", False),
        ("Tesla V100-SXM2-32GB, 32768", "v100", False),
        ("NVIDIA A10G, 23028", "a10g", False),
        ("NVIDIA L4, 23034", "l4", False),
        ("NVIDIA A100-SXM4-40GB, 40960", "a100_40gb", False),
        ("NVIDIA H100 80GB HBM3, 81559", "h100", False),
        ("Tesla T4, 15360", "v100_16gb", True),
        ("NVIDIA GeForce RTX 4090, 24564", "l4", True),
        ("NVIDIA RTX A6000, 49140", "l40s", True),
    ],
)
def test_local_gpu_is_recognized_by_its_name(
    monkeypatch: pytest.MonkeyPatch, message: str, similar: str, is_assumed: bool
) -> None:
    name, _, mib = message.rpartition(", ")
    monkeypatch.setattr(devices, "list_gpus", lambda: [(name, float(mib) * 2**20)])
    here = devices.detect_gpu()
    assert here
    found, assumed = here
    assert (found.bandwidth, found.price) == (DEVICES[similar].bandwidth, DEVICES[similar].price)
    assert bool(assumed) == is_assumed
    assert not assumed or f"assumed the speed of {similar}" in assumed


def test_check_reports_the_assumed_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(devices, "list_gpus", list)
    assert main(["check", "bert_base", "--cluster", "one_gpu"]) == 0
    message = "h100 assumed: one_gpu does not set gpu_type, and this machine has no GPU; set cluster.gpu_type"
    assert message in capsys.readouterr().out
    assert main(["check", "bert_base", "--cluster", "one_gpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"][0] == message
    assert main(["plan", "bert_base", "--cluster", "one_gpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["assumed"] == message


@pytest.mark.parametrize(("recipe", "device"), [("gpt2", "h100"), ("gpt3_6_7b", "b200"), ("gpt3_13b", "b200")])
def test_unnamed_gpu_is_the_first_usual_one_with_enough_memory(
    recipe: str, device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan once assumed the largest GPU, so its time and price were those of a B200. A recipe is refused only if it
    fits no known GPU."""
    monkeypatch.setattr(devices, "list_gpus", list)
    cluster, net = load_cluster("one_gpu", ["engine.micro_batch_tokens=2048"]), load(recipe)
    found = planning.estimate_run(net, cluster)
    assert found.device.name == device
    for elsewhere in (False, True):
        try:
            (message, *_) = planning.refuse_what_does_not_fit(net, cluster, elsewhere=elsewhere)
        except ResourceError as error:
            assert found.why_not
            message = str(error)
        assert f"{device} assumed: one_gpu does not set gpu_type" in message


def test_remote_cluster_does_not_use_the_gpus_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "list_gpus", lambda: (("NVIDIA L4", 24e9),))
    there = load_cluster("one_gpu", ["ray_address=10.0.0.1:6379"])
    assert run_estimate.devices_of(load_cluster("one_gpu"), 1)[1] == ""
    assert run_estimate.devices_of(there, 1)[1] == "assumed: each machine of the cluster is like this one (NVIDIA L4)"
    device, message = run_estimate.devices_of(there, 1, elsewhere=True)
    assert (device.name, message) == ("h100", "h100 assumed: one_gpu does not set gpu_type; set cluster.gpu_type")


def test_core_speed_ignores_outliers(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = iter([0.01, 0.01, 9.0, 9.0, *[0.5] * 6])
    clock = [0.0, True]

    def process_time() -> float:
        clock[1] = not clock[1]
        clock[0] += next(odd) if clock[1] else 0.0
        return clock[0]

    monkeypatch.setattr(devices, "process_time", process_time)
    flops, bandwidth = devices._speed.__wrapped__()
    assert (flops, bandwidth) == pytest.approx((8 * 2 * 384**3 / 0.5, 2 * 2 * 32e6 / 0.5))


def test_workers_that_share_cores_are_planned_as_slower() -> None:
    cluster, cores = load_cluster("local"), int(devices.cores())
    alone, message = run_estimate.devices_of(replace(cluster, num_workers=cores), cores)
    shared, slow = run_estimate.devices_of(replace(cluster, num_workers=4 * cores), 4 * cores)
    assert message == ""
    assert slow == f"slow: {4 * cores} workers request {4 * cores} cores, but this machine has {cores}"
    assert shared.flops == pytest.approx(alone.flops / 4)


def test_dataloader_processes_without_free_cores_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, cluster = load("bert_base"), load_cluster("local", ["num_workers=2", "engine.dataloader_num_workers=2"])
    message = []
    for number in (4.0, 6.0, 2.5):
        monkeypatch.setattr(run_estimate, "cores", lambda number=number: number)
        notes = planning.refuse_what_does_not_fit(recipe, cluster)
        message.append([note for note in notes if "loader" in note])
    lower = "lower cluster.engine.dataloader_num_workers"
    assert message == [
        [f"slow: 4 dataloader processes for 2 workers, but only 2 free cores; {lower}"],
        [],
        [f"slow: 4 dataloader processes for 2 workers, but only 0.5 free cores; {lower}"],
    ]


@pytest.mark.parametrize("number", [0.5, 1.5])
def test_fraction_of_a_core_is_planned_as_a_fraction(number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run_estimate, devices):
        monkeypatch.setattr(module, "cores", lambda: number)
    whole = run_estimate.devices_of(load_cluster("local"), 1, timed=False)[0]
    two, slow = run_estimate.devices_of(load_cluster("local", ["num_workers=2"]), 2, timed=False)
    assert whole.flops == pytest.approx(min(1.0, number) * 1e12)
    assert two.flops == pytest.approx(number / 2 * 1e12)
    assert slow == f"slow: 2 workers request 2 cores, but this machine has {number:g}"


# The commands `check` and `plan`


def test_check_and_plan_agree_on_what_fits() -> None:
    recipe, cluster = load("megatron_8b"), load_cluster("64xa100")
    found = planning.estimate_run(recipe, cluster)
    assert 0.95 < memory_ratio(found.own.choice.memory, found.device) <= REFUSED
    assert found.why_not == ""
    notes = planning.refuse_what_does_not_fit(recipe, cluster)
    assert list(found.notes) == notes
    assert notes[0].startswith("tight: the plan uses 10")
    recipe = load("mt_nlg_530b")
    more = load_cluster("64xa100")
    assert planning.estimate_run(recipe, more).why_not.startswith("each device needs")
    with pytest.raises(ResourceError, match="each device needs"):
        planning.refuse_what_does_not_fit(recipe, more)


def test_keys_outside_the_plan_are_reported() -> None:
    given = ["torch_compile=true", "padding=padded", "zero_stage=3", f"deepspeed.{HPZ}=8"]
    cluster = load_cluster("64xa100", [f"cluster.engine.{key}" for key in given])
    assert planning.refuse_what_does_not_fit(load("gpt2"), cluster) == [
        "not counted: torch_compile, padding: padded, zero_hpz_partition_size"
    ]


def test_fp8_below_a_billion_parameters_is_said_to_be_slow() -> None:
    cluster = load_cluster("64xa100", ["cluster.engine.fp8_recipe=tensorwise", "cluster.engine.zero_stage=2"])
    notes = {name: planning.refuse_what_does_not_fit(load(name), cluster) for name in ("gpt2", "megatron_bert_1_3b")}
    slow = "slow: cluster.engine.fp8_recipe is tensorwise, slower than bf16 below a billion parameters"
    assert [slow in each for each in notes.values()] == [True, False]
    assert all("not counted: fp8_recipe" in each for each in notes.values())


def test_plan_shows_communication_and_activation_memory(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "gpt2", "--cluster", "8xh100"]
    assert main(asked) == 0
    message = capsys.readouterr().out
    assert "sent per device and step" in message
    assert [
        f"activations with activation_checkpointing={kind}" in message for kind in ("none", "selective", "full")
    ] == [True] * 3
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["own"]["sent_bytes"][0]["total"] > found["own"]["sent_bytes"][0]["reducing"] > 0
    kinds = found["activation_checkpointing"]
    assert kinds["full"]["activations"] < kinds["none"]["activations"] == found["own"]["memory_bytes"]["activations"]


def test_pipeline_and_sequence_parallelism_have_communication_and_time() -> None:
    demand, device = workload_of(load("gpt2")), DEVICES["h100"]
    width, tokens = 768, 64 * 1024
    piped = ParallelLayout(pipeline=4, zero=1, rows=4)
    passing = communication_volume(demand, piped, 1024, 64).passing
    assert passing == pytest.approx(2 * tokens * width * 2 + 6 * demand.weights.tables)
    shared = ParallelLayout(sequence=8, rows=4)
    exchanged = communication_volume(demand, shared, 1024, 64).sequence
    # layers, exchanges per layer, fraction sent in a ring
    assert exchanged == pytest.approx(12 * 8 * 7 / 8 * tokens / 8 * width * 2)
    assert step_seconds(demand, shared, device, 1024, 64).sequence == pytest.approx(exchanged / device.link)
    again = communication_volume(demand, replace(shared, checkpointing="full"), 1024, 64).sequence
    assert again == pytest.approx(1.5 * exchanged)


# Best layouts


def test_deadline_is_met_with_the_fewest_devices() -> None:
    recipe, cluster = load("bert_base"), load_cluster("8xh100")
    demand, device = workload_of(recipe), DEVICES["h100"]
    deadline = planning.find_best_layouts(demand, device, 3, count=1)[0].total_s * 1.0001
    found = planning.estimate_run(recipe, cluster, deadline_s=deadline)
    assert found.wanted
    assert found.wanted.choice.layout.devices == 3  # not 4
    assert found.wanted.choice.total_s <= deadline


def test_alternative_layouts_are_useful() -> None:
    demand = workload_of(load("gpt2"))
    found = planning.find_best_layouts(demand, DEVICES["h100"], 8, count=99)
    assert all(one.layout.checkpointing != "selective" for one in found)  # GPU kernels keep no attention scores
    core = devices.measure_cores(1, 2, timed=False)
    assert not any(
        one.layout.offload for one in planning.find_best_layouts(demand, replace(core, memory=1e12), 2, count=99)
    )
