"""Every command that writes, with a file size limit (`ulimit -f`) in place of a full disk."""

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestration import full_disk
from preprocessing.errors import BadInput
from preprocessing.files import whole_folder

ROOT = Path(__file__).parents[2]
SENTENCES = "The small river runs behind the old mill. Nobody knows who built it. A boat waits there.\n\n"
FLAGS = ("--scale", "tiny", "eval_tasks=[]", "phases.0.steps=210")
UNFINISHED = (".tmp-*", ".*.unfinished", ".mlflow-*")
KB = 1024
COMMANDS = {  # arguments of each command; TO stands for a directory to write to
    "corpus": "corpus bert_tiny data.tokenizer.vocab_size=600",
    "corpus_again_with_a_card": "corpus bert_tiny --data-card",
    "corpus_rows": "corpus bert_tiny --materialize",
    "train": "train gpt2 seed=3",
    "run": "run gpt2 seed=4",
    "eval": "eval gpt2 --csv CSV:text,label",
    "export": "export gpt2 TO",
    "export_without_heads": "export gpt2 TO --no-heads",
    "export_a_step": "export gpt2 TO --step 100",
    "register": "register gpt2 --name mine",
}


def sesame(*words: str, most_bytes: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    """Run a command with a maximum file size, which also applies to its child processes."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    command = [sys.executable, "-X", "faulthandler", "-m", "sesame", *words]  # shows where a process was killed
    return subprocess.run(command, cwd=ROOT, preexec_fn=limit, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("".join(f"Number {number}. {SENTENCES}" for number in range(3000)))
    return file


@pytest.fixture(scope="module")
def out(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output directory with a finished run."""
    out = tmp_path_factory.mktemp("out")
    done = sesame("run", "gpt2", *FLAGS, "cluster.save_every=100", "--data", str(text), "--output-dir", str(out))
    assert done.returncode == 0, done.stderr
    return out


def partial_files(*folders: Path) -> list[Path]:
    """Return partially written files and directories."""
    return [path for folder in folders for pattern in UNFINISHED for path in folder.rglob(pattern)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("most_bytes", [4 * KB, 100 * KB])
@pytest.mark.parametrize("command", COMMANDS)
def test_command_that_cannot_write_gives_a_one_line_error_and_leaves_nothing(
    command: str, most_bytes: int, text: Path, out: Path, tmp_path: Path
) -> None:
    table = text.with_name("mine.csv")
    table.write_text("text,label\n" + "".join(f"text {number} is {number % 2},{number % 2}\n" for number in range(200)))
    words = COMMANDS[command].replace("TO", str(tmp_path / "to")).replace("CSV", str(table)).split()
    done = sesame(*words, *FLAGS, "--data", str(text), "--output-dir", str(out), most_bytes=most_bytes)
    assert done.returncode in (2, 4), done.stderr
    assert "Traceback" not in done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("sesame: ")] == done.stderr.splitlines()[-1:]
    assert not partial_files(out, tmp_path)
    assert not (tmp_path / "to").exists()


def test_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export to another disk once named the disk of the current directory, which had free space."""
    asked = list[Path]()
    monkeypatch.setattr(full_disk, "find_mount", lambda folder: asked.append(folder) or ("/small", "tmpfs"))
    to = tmp_path / "a" / "b"
    with (
        pytest.raises(BadInput, match=r"the file system at /small .*free some space, and repeat the command$"),
        full_disk.explain_full_disk(to, lambda: "", full_disk.AGAIN),
        whole_folder(to),
    ):
        raise shutil.Error([("from", str(to), "[Errno 28] No space left on device")])
    assert asked == [tmp_path]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("command", ["corpus", "run"])
def test_output_directory_works_after_a_first_failed_command(command: str, text: Path, tmp_path: Path) -> None:
    flags = (*FLAGS, "--data", str(text), "--output-dir", str(tmp_path))
    done = sesame(command, "gpt2", *flags, most_bytes=4 * KB)
    assert done.returncode in (2, 4), done.stderr
    assert "Traceback" not in done.stderr
    assert sesame("corpus", "gpt2", *flags).returncode == 0
