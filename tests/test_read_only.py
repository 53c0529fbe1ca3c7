"""A read-only installation (of root, an image, or a module of a cluster): checkout and .venv cannot be written to.

The tests run as root, who can write everywhere. So each command runs in its own namespace with a read-only mount.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLAGS = ("--scale", "tiny", "eval_tasks=[source_classification]", "phases.0.steps=210")
MOUNT = 'mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
VERBS = {
    "doctor": "doctor",
    "corpus": "corpus bert_tiny --data-card --materialize",
    "eval": "eval gpt2 --csv CSV:text,label --max-steps 5 --learning-rates 1e-3 --batch-sizes 8 --num-seeds 1",
    "inspect": "inspect gpt2",
    "where": "where gpt2 --text mill",
    "export": "export gpt2 TO",
    "generate": "generate gpt2 The --set phases.0.steps=210 --set eval_tasks=[source_classification]",
    "register": "register gpt2 --name mine",
}


def read_only(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of `sesame` that cannot write to its checkout and its environment."""
    command = ["unshare", "--mount", "sh", "-c", MOUNT, str(ROOT), sys.executable, "-m", "sesame", *words]
    environment = os.environ | {"HOME": str(home)}
    environment.pop("XDG_CACHE_HOME", None)
    return subprocess.run(command, cwd=home.parent, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The empty home of a user; skips the test if this user may not mount."""
    home = tmp_path_factory.mktemp("user") / "home"
    home.mkdir()
    if os.getuid() or subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount the checkout read-only")
    return home


@pytest.fixture(scope="module")
def out(home: Path) -> Path:
    """The output directory of a finished run of the read-only installation."""
    text = home.parent / "text.txt"
    text.write_text(
        "".join(f"Number {number}. The river runs behind the mill. Who built it?\n\n" for number in range(3000))
    )
    out = home.parent / "out"
    done = read_only("run", "gpt2", *FLAGS, "--data", str(text), "--output-dir", str(out), home=home)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_writes_nothing_next_to_the_code(out: Path) -> None:
    assert (out / "mlflow.db").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_works_in_a_read_only_installation(verb: str, out: Path, home: Path, tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("text,label\n" + "".join(f"text {number} is {number % 2},{number % 2}\n" for number in range(200)))
    words = VERBS[verb].replace("TO", str(tmp_path / "to")).replace("CSV", str(table)).split()
    flags = ["--data", str(out.parent / "text.txt"), "--scale", "tiny"] if verb != "doctor" else []
    overrides = [] if verb in ("doctor", "generate") else ["eval_tasks=[source_classification]", "phases.0.steps=210"]
    done = read_only(*words, *overrides, *flags, "--output-dir", str(out), home=home)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "ead-only" not in done.stdout + done.stderr


def test_make_setup_refuses_a_read_only_checkout(home: Path, tmp_path: Path) -> None:
    """pip used to fail in the middle of the installation with a traceback."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    words = ["make", "setup", f"PYTHON={sys.executable}"]
    command = ["unshare", "--mount", "sh", "-c", 'cd "$0" && ' + MOUNT.replace('exec "$@"', 'cd "$0" && exec "$@"')]
    done = subprocess.run([*command, str(tmp_path), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    message = (
        f"setup: {tmp_path} is not writable: ask its owner to run 'make setup', "
        "or clone the repository into your own directory"
    )
    assert message in done.stderr.splitlines()
    assert not (tmp_path / ".venv").exists()
