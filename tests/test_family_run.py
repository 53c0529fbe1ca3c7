"""Check the options and jobs of `make third`, which only runs in CI."""

import re
import shlex
from pathlib import Path

from tests import family_run

ROOT = Path(__file__).parents[1]


def test_the_options_of_make_third_exist(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r"python -m tests\.family_run (--third .*)", makefile)
    words = shlex.split(line.replace("$$(date +%-j)", "27").replace("$(ARGS)", ""))
    args = family_run.parse(words)
    assert (args.third, args.max_steps) == (27, 6)
    setting = family_run.Setting(tmp_path, args.text, args.max_steps)
    jobs = setting.jobs(["gpt2", "xlm_tlm"])  # xlm_tlm also reads parallel text
    assert [job.recipe.phases[0].steps for job in jobs.values()] == [6, 6]
    assert not list(tmp_path.iterdir())  # nothing is written yet
