"""Compares likelihoods with lm-eval and minicons, example by example, on the same models.

    python benchmarks/witness.py    # reads ../shared/data

Neither library is a dependency of Sesame. pip installs pinned versions into a separate environment, which uses all
other packages from the environment of this process. Prints the results of the tests that compare with these libraries.
The exit code is 1 if a test fails or is skipped.
"""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
ENV: Final = ROOT / "build" / "witness"
PINS: Final = (  # with the dependencies that are not in constraints.txt; pip ignores their older chardet (--no-deps)
    *("lm-eval==0.4.13", "minicons==0.3.39", "accelerate==1.15.0", "DataProperty==1.1.1", "evaluate==0.4.6"),
    *("mbstrdecoder==1.1.5", "more_itertools==11.2.1", "pathvalidate==3.3.1", "peft==0.21.2", "pytablewriter==1.2.1"),
    *("sqlitedict==2.1.0", "tabledata==1.3.5", "tcolorpy==0.1.7", "typepy==1.3.5", "wonderwords==3.0.1"),
    "word2number==1.1",
)
TESTS: Final = (
    "training/evaluation/likelihood/test_lm_eval.py",
    "training/evaluation/likelihood/test_minicons.py",
    "orchestration/config/test_lm_eval_files.py",
)
RESULT_LINE: Final = re.compile(r"\S+: \d+ \w+, .*largest difference \S+")


def make_env() -> None:
    """Create the environment, unless it exists with these versions."""
    made = ENV / "pins.txt"
    if made.is_file() and made.read_text() == "\n".join(PINS):
        return
    print(f"making {ENV.relative_to(ROOT)} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENV], check=True)
    (packages,) = ENV.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
    pip: list[str | Path] = [
        ENV / "bin" / "python",
        "-I",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, "--no-deps", *PINS], check=True)
    made.write_text("\n".join(PINS))


def main() -> int:
    """Run the tests and return the exit code."""
    make_env()
    tests = [ROOT / "tests" / name for name in TESTS]
    command: list[str | Path] = [ENV / "bin" / "python", "-m", "pytest", "-q", "-s", "-rs", "-m", "slow", *tests]
    print(", ".join(PINS[:2]), "- takes some minutes; prints a line for each task", flush=True)
    lines = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tests_run:
        assert tests_run.stdout is not None
        for line in tests_run.stdout:
            lines.append(line)
            if match := RESULT_LINE.search(line):
                print(match[0], flush=True)
    ended = "".join(lines).strip().splitlines()[-1]
    if tests_run.returncode or "skipped" in ended:
        print("".join(lines))
        return 1
    print(ended)
    return 0


if __name__ == "__main__":
    sys.exit(main())
