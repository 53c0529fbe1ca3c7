"""Every verb that writes, with a limit of a file's size (`ulimit -f`) in place of a full disk."""

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
VERBS = {  # the words of each, with TO for a folder to write to
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
    """A command whose files, and those of all processes below it, can have so many bytes."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    command = [sys.executable, "-m", "sesame", *words]
    return subprocess.run(command, cwd=ROOT, preexec_fn=limit, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("".join(f"Number {number}. {SENTENCES}" for number in range(3000)))
    return file


@pytest.fixture(scope="module")
def out(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("out")
    done = sesame("run", "gpt2", *FLAGS, "cluster.save_every=100", "--data", str(text), "--output-dir", str(out))
    assert done.returncode == 0, done.stderr
    return out


def left_behind(*folders: Path) -> list[Path]:
    """What is half written."""
    return [path for folder in folders for pattern in UNFINISHED for path in folder.rglob(pattern)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("most_bytes", [4 * KB, 100 * KB])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_cannot_write_says_so_in_one_line_and_leaves_nothing(
    verb: str, most_bytes: int, text: Path, out: Path, tmp_path: Path
) -> None:
    table = text.with_name("mine.csv")
    table.write_text("text,label\n" + "".join(f"text {number} is {number % 2},{number % 2}\n" for number in range(200)))
    words = VERBS[verb].replace("TO", str(tmp_path / "to")).replace("CSV", str(table)).split()
    done = sesame(*words, *FLAGS, "--data", str(text), "--output-dir", str(out), most_bytes=most_bytes)
    assert done.returncode in (2, 4), done.stderr
    assert "Traceback" not in done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("sesame: ")] == done.stderr.splitlines()[-1:]
    assert not left_behind(out, tmp_path)
    assert not (tmp_path / "to").exists()


def test_the_disk_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export to another disk named that of the current folder, with plenty of room."""
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
@pytest.mark.parametrize("verb", ["corpus", "run"])
def test_the_first_command_of_a_folder_that_cannot_write_leaves_one_that_works(
    verb: str, text: Path, tmp_path: Path
) -> None:
    flags = (*FLAGS, "--data", str(text), "--output-dir", str(tmp_path))
    done = sesame(verb, "gpt2", *flags, most_bytes=4 * KB)
    assert done.returncode in (2, 4), done.stderr
    assert "Traceback" not in done.stderr
    assert sesame("corpus", "gpt2", *flags).returncode == 0
