"""The benchmark for one GPU: its goals, its table and its time limits, and all its parts with tiny models on a CPU."""

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu_corpus import make_corpus
from benchmarks.gpu_table import NETS, list_goals, render_fp8, render_table
from orchestration.config import load
from preprocessing.rows import ExampleDataset
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab

# a module that is None cannot be imported, and no specification of it is found
ABSENT = """
import sys
sys.modules.update(dict.fromkeys(("ray", "mlflow", "apache_beam")))
"""


def made_up_results() -> dict[str, dict[str, Any]]:
    """Results in which GPT-2 meets all its goals, BERT at 512 meets two, and BERT at 128 was not measured."""
    speeds = {
        ("sesame", "gpt2"): 500e3,
        ("plain", "gpt2"): 490e3,
        ("trainer", "gpt2"): 155e3,
        ("sesame", "bert512"): 600e3,
        ("plain", "bert512"): 650e3,
        ("trainer", "bert512"): 310e3,
    }
    found: dict[str, dict[str, Any]] = {f"{arm} {net}": {"tokens_per_s": speed} for (arm, net), speed in speeds.items()}
    found["sesame gpt2"] |= {"mfu": 0.4, "step_s": 1.05, "gib": 30.0, "first_step_s": 41.0, "filled": 1.0}
    found["restart gpt2"] = {"first_step_s": 17.0}
    found["sesame bert128"] = {"problem": "stopped after 55 s"}
    return found


def test_goals_compare_sesame_with_fixed_speeds_and_with_both_peers() -> None:
    goals = list(list_goals(made_up_results()))
    assert [goal.verdict for goal in goals] == ["yes", "yes", "yes", "yes", "no", "yes", *["not measured"] * 3]
    ratios = [goal.measured for goal in goals[:6]]
    assert ratios == pytest.approx([500e3, 500 / 490, 500 / 155, 600e3, 600 / 650, 600 / 310])


def test_the_table_has_one_line_for_each_arm_and_goal() -> None:
    lines = render_table(made_up_results()).splitlines()
    assert len(lines) == 2 + 9 + 1 + 2 + 9 + 2
    assert lines[2] == (
        "| GPT-2 124M, 512 x 1,024 | Sesame | 500,000 | 0.400 | 1.050 | 30.0 | 41.0 | 17.0 | - "
        "| 100% of the positions are tokens |"
    )
    assert lines[8].endswith("| stopped after 55 s |")
    assert lines[9].endswith("| not run |")
    assert "| BERT base, 256 x 512: ratio to plain torch | 0.92 | 1.00 | no |" in lines
    assert lines[-1] == "5 of 9 goals are met."


def test_cuda_graphs_have_a_line_if_they_were_measured() -> None:
    results = made_up_results() | {"graphs gpt2": {"tokens_per_s": 510e3, "problem": "no graph: it failed (x)"}}
    lines = render_table(results).splitlines()
    assert lines[5].startswith("| GPT-2 124M, 512 x 1,024 | Sesame, `cuda_graphs` | 510,000 |")
    assert lines[5].endswith("| no graph: it failed (x) |")


def test_fp8_has_a_table_of_speeds_and_losses_beside_bf16() -> None:
    results = made_up_results() | {
        "fp8 bf16": {"tokens_per_s": 40e3, "loss": 7.5, "last_step": 40, "gib": 60.0},
        "fp8 tensorwise": {"tokens_per_s": 52e3, "loss": 7.51, "last_step": 40, "gib": 61.0},
        "fp8 rowwise": {"problem": "stopped after 90 s"},
    }
    lines = render_fp8(results)
    assert lines[-3:] == [
        "| bf16 | 40,000 | 1.00 | 7.5000 | +0.0000 | 40 | 60.0 |  |",
        "| tensorwise | 52,000 | 1.30 | 7.5100 | +0.0100 | 40 | 61.0 |  |",
        "| rowwise | - | - | - | - | - | - | stopped after 90 s |",
    ]
    assert lines[-1] in render_table(results)


def test_all_parts_fit_in_ten_minutes_and_the_most_important_ones_are_first() -> None:
    assert sum(part.limit for part in gpu.PARTS) <= gpu.TOTAL_S < 600
    assert [part.kind for part in gpu.PARTS[:6]] == ["sesame", "plain"] * 3


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], [part.name for part in gpu.PARTS]),
        (["gpt2", "tests"], ["sesame gpt2", "plain gpt2", "tests", "trainer gpt2", "restart gpt2", "graphs gpt2"]),
        (["plain"], ["plain gpt2", "plain bert512", "plain bert128"]),
        (["trainer bert128"], ["trainer bert128"]),
        (["fp8"], ["fp8 bf16", "fp8 tensorwise", "fp8 rowwise"]),
    ],
)
def test_words_select_parts(words: list[str], expected: list[str]) -> None:
    assert [part.name for part in gpu.select_parts(words)] == expected


def test_an_unknown_word_is_an_error() -> None:
    with pytest.raises(SystemExit, match="invalid part: got gpt3, expected sesame, gpt2"):
        gpu.select_parts(["gpt3"])


def test_a_process_that_takes_too_long_is_stopped_with_its_loaders_and_keeps_its_last_result() -> None:
    program = (
        "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "print('{\"pid\": %d}' % child.pid, flush=True); time.sleep(60)"
    )
    began = time.monotonic()
    result, _ = gpu.run_process([sys.executable, "-c", program], {}, 1.5)
    assert time.monotonic() - began < 10
    assert result["problem"] == "stopped after 2 s"
    assert has_ended(result["pid"])


def has_ended(pid: int) -> bool:
    """Whether a killed process ends within five seconds; a process whose end nobody has read has ended, too."""
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_a_process_that_fails_has_a_problem() -> None:
    result, log = gpu.run_process([sys.executable, "-c", "raise ValueError('no room')"], {}, 30)
    assert result == {"problem": "failed with exit code 1: ValueError: no room"}
    assert "Traceback" in log


def test_the_speed_of_the_loop_is_the_mean_after_the_first_log(capsys: pytest.CaptureFixture[str]) -> None:
    net = gpu.find_net("bert512", tiny=True)
    measurement = gpu.LoopMeasurement(net, gpu.TINY, only_start=False)
    for step, speed, seconds in ((2, 1.0, 9.0), (4, 400.0, 0.5), (6, 100.0, 1.0)):
        metrics = {"perf/tokens_per_second": speed, "perf/step_time_s": seconds, "train/loss": 8.0}
        measurement.log(step, metrics)
    assert measurement.result["tokens_per_s"] == pytest.approx((400 + 200) / 3)
    assert measurement.result["step_s"] == pytest.approx(0.75)
    assert measurement.result["filled"] == pytest.approx(150 / (8 * 64))
    assert len(capsys.readouterr().out.splitlines()) == 2
    with pytest.raises(gpu.MeasurementEnded):
        measurement.report_activity(6, "")


def test_launches_and_kernels_of_a_recorded_step_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    recorder = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    recorder.start()
    with torch.profiler.record_function("cudaLaunchKernel"):  # without a GPU, a range with the name of a launch
        torch.zeros(2)
    assert gpu.count_launches(recorder) == {"launches": 1, "kernels": 0}


def test_pairs_of_the_made_up_corpus_are_as_full_as_those_of_books(tmp_path: Path) -> None:
    recipe = load("bert_base")
    corpus = make_corpus(tmp_path / "corpus", recipe.data.tokenizer, 1_500_000, NETS["bert512"].document_tokens)
    store = TokenStore.open(corpus, "train")
    vocab = Vocab.load(store.vocab_dir)
    assert vocab.size == 30_522
    rows = ExampleDataset(store, vocab, recipe.sampling, 512)
    lengths = [len(rows.row(*address)["input_ids"]) for address in rows.addresses(0, 400)]
    assert 0.72 < np.mean(lengths) / 512 < 0.84


def test_the_deepest_gpt_fits_the_given_memory() -> None:
    room = gpu.TINY.memory
    small, _ = gpu.find_deepest(gpu.TINY, room)
    larger, needed = gpu.find_deepest(gpu.TINY, room + 8e6)
    assert small.model.num_hidden_layers < larger.model.num_hidden_layers
    assert needed.peak <= room + 8e6


@pytest.mark.slow  # each part runs in a process that imports DeepSpeed or transformers
def test_all_parts_run_on_a_cpu_without_ray_mlflow_and_beam(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ABSENT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "benchmarks.gpu", "--tiny", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=gpu.ROOT, env=environment, capture_output=True, text=True, timeout=570)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out" / "gpu.md").read_text()
    results = {}
    for line in text.splitlines():
        if line.startswith("* "):
            head, _, value = line.removeprefix("* ").partition(": ")
            results[head.partition(" (")[0]] = json.loads(value)
    assert list(results) == [part.name for part in gpu.PARTS]
    for name in [name for name in results if name.startswith("fp8 ")]:  # they may have too little time or no torchao
        if not (problem := results[name].get("problem", "")).startswith("not run"):
            assert ("sesame-pretraining[fp8]" in problem) == (name != "fp8 bf16" and not find_spec("torchao"))
        if problem:
            del results[name]
    assert not [result for result in results.values() if "problem" in result]
    for name, result in results.items():
        kind, _, net = name.partition(" ")
        if kind in ("sesame", "plain", "trainer", "fp8"):
            assert result["tokens_per_s"] > 0
        elif net:
            assert result["first_step_s"] > 0
    assert 0.8 < results["largest"]["ratio"] < 1.2
    assert "tests collected" in results["tests"]["summary"]
    assert done.stdout.rstrip().endswith("of 9 goals are met.")
    assert "not measured" not in done.stdout
