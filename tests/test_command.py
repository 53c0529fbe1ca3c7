"""The command in a separate process: with a locale that is not UTF-8, and in a Python without its packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # Python then uses ASCII


def command(*words: str, flags: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python FLAGS -m sesame WORDS` with these environment variables."""
    without = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    return subprocess.run(
        [sys.executable, *flags, "-m", "sesame", *words],
        cwd=ROOT,
        env=without | environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1"])
def test_a_message_that_the_locale_cannot_write_is_escaped(locale: str) -> None:
    done = command("check", "bérta", **ASCII | {"LC_ALL": locale})
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith((r"sesame: invalid recipe: got b\xe9rta, ", "sesame: invalid recipe: got bérta, "))


def test_text_and_names_are_utf_8_in_a_locale_of_ascii(tmp_path: Path) -> None:
    text = tmp_path / "größe.txt"
    text.write_text("Ein Café im Süden.\n\n" * 50, encoding="utf-8")
    words = (
        "corpus",
        "gpt2",
        "--scale",
        "tiny",
        "--data",
        str(text),
        "--dry-run",
        "--output-dir",
        str(tmp_path / "out"),
    )
    done = command(*words, **ASCII)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "would do: text, vocab, corpus")
    assert "gr\\xf6\\xdfe" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_utf_8_locale_is_unchanged() -> None:
    done = command("check", "bérta", LC_ALL="C.UTF-8")
    assert done.stderr.startswith("sesame: invalid recipe: got bérta, expected a name that")


def test_a_python_without_the_packages_reports_the_first_missing_one_in_one_line() -> None:
    """A submitted job runs in the Python that started Ray, which may be another one."""
    done = command("recipes", flags=("-S",))  # no site-packages
    (line,) = done.stderr.splitlines()
    assert done.returncode == 4
    assert line.startswith(
        f"sesame: No module named 'typer' in this Python ({sys.executable}, {sys.version.split()[0]})"
    )
    assert "pip install 'sesame-pretraining[pipeline,training,orchestration]'" in line


def test_a_missing_package_of_a_verb_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For example in an environment without the optional dependencies that the verb needs."""
    from orchestration import cli

    monkeypatch.setitem(sys.modules, "yaml", None)  # its import fails
    for name in [name for name in sys.modules if name.startswith("orchestration.config")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main(["check", "gpt2"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sesame: No module named 'yaml' in this Python")


def test_a_missing_module_of_sesame_is_reported_as_a_bug() -> None:
    from preprocessing.errors import explain_missing_module

    with pytest.raises(ModuleNotFoundError):
        explain_missing_module(ModuleNotFoundError("No module named 'training.nothing'", name="training.nothing"))
