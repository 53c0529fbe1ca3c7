"""Shell completion: quick, and without importing torch."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestration.config import list_names
from orchestration.terminal import complete

ROOT = Path(__file__).parents[3]


def complete_line(line: str, folder: Path = ROOT, shell: str = "bash") -> list[str]:
    """Return the completions of the last word of a command line."""
    words = line.split(" ")
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = {**os.environ, **asked, "_SESAME_COMPLETE": f"complete_{shell}", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "orchestration.cli"]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_commands_and_recipes_are_completed() -> None:
    assert complete_line("sesame che") == ["check"]
    assert complete_line("sesame check bert_base") == ["bert_base", "bert_base_cased"]


def test_keys_are_completed_after_a_recipe() -> None:
    assert {"optimizer.beta1=", "optimizer.beta2="} == set(complete_line("sesame check gpt2 optimizer.beta"))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_show_the_value_of_a_key(shell: str) -> None:
    assert "0.00025" in " ".join(complete_line("sesame train gpt2 optimizer.learning_r", shell=shell))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_script_requests_completions(shell: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orchestration.cli", "--show-completion", shell]
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"_SESAME_COMPLETE=complete_{shell}" in script


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    sesame = tmp_path / "sesame"
    root, python = shlex.quote(str(ROOT)), shlex.quote(sys.executable)  # paths may contain spaces
    sesame.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {python} -m orchestration.cli "$@"\n')
    sesame.chmod(0o755)
    lines = f"""
        export _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1
        source <({sesame} --show-completion bash)
        COMP_WORDS=(sesame check bert_base_) COMP_CWORD=2
        _sesame_completion {sesame}
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("bert_base_cased\n", "")


class Context:
    """The part of typer's context that the completion reads."""

    def __init__(self, **params: object) -> None:
        self.params = params


REMOTE = ["1024xh100", "2240xa100", "64xa100", "64xh100", "8xh100", "cpu_cluster"]


def test_clusters_corpora_tables_and_parts_are_completed() -> None:
    assert (
        complete.cluster("")
        == list_names("clusters")
        == [*REMOTE, "dataflow", "flink", "local", "one_gpu", "portable", "spark"]
    )
    assert complete.corpus("") == list_names("corpora")
    assert complete.recipe("") == list_names("recipes")
    assert complete.table("alb") == ["albert-sp", "albert-sharing"]
    assert complete.part("optimizer.a") == [
        "optimizer.adamw",
        "optimizer.adafactor",
        "optimizer.adjust_lr_fn",
        "optimizer.adamw_lr_ratio",
    ]


def test_runs_of_the_output_directory_are_completed(tmp_path: Path) -> None:
    (tmp_path / "runs" / "bert_base_tiny-912a72f8").mkdir(parents=True)
    assert complete.run(Context(output_dir=tmp_path), "bert_base_t") == ["bert_base_tiny-912a72f8"]
    assert complete.run(Context(), "bert_base_c") == ["bert_base_cased"]


def test_completed_key_also_offers_its_value() -> None:
    found = complete.override(Context(recipe="gpt2"), "optimizer.learning_r")
    assert [word for word, _ in found] == ["optimizer.learning_rate=", "optimizer.learning_rate=0.00025"]
    assert complete.override(Context(recipe="gpt2"), "init") == [("init_checkpoint=", "")]
    assert complete.override(Context(recipe="no_such"), "optimizer.learning_r") == []


def test_every_offered_key_is_valid_with_its_value() -> None:
    from orchestration.config import load, load_cluster, split_overrides

    for recipe in ("bert_base", "t5_small", "xlnet_base"):
        offered = [key + value for key, value in complete.override(Context(recipe=recipe), "")]
        of_recipe, of_cluster = split_overrides(offered)
        typed = [each for each in of_recipe if not each.endswith("=") and not each.startswith("paper=")]
        assert load(recipe, typed).hash == load(recipe).hash
        assert load_cluster("local", [each for each in of_cluster if not each.endswith("=")]) == load_cluster("local")


def test_completion_imports_no_slow_module() -> None:
    program = """
import sys
from orchestration.terminal import complete
complete.recipe(""), complete.cluster(""), complete.corpus("")
assert not {"pydantic", "numpy", "yaml"} & set(sys.modules)
class Context:
    params = {"recipe": "bert_base"}
complete.override(Context, ""), complete.part(""), complete.table("")
heavy = {"torch", "apache_beam", "ray", "mlflow", "deepspeed", "matplotlib", "transformers"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
