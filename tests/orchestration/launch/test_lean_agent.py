"""The agent of a Ray without dashboard finds none of its modules, and runs as if Python had been started with it."""

import subprocess
import sys
from pathlib import Path

import pytest

from orchestration.launch import lean_agent

PROGRAM = """
import sys
from ray._private import utils
utils.get_dashboard_dependency_error = lambda: None
from ray.dashboard.utils import DashboardAgentModule, get_all_modules
own = [path for path in sys.path if path in (sys.argv[-1], sys.argv[0].rpartition("/")[0])]
print(len(get_all_modules(DashboardAgentModule)), sys.argv[1:-1], own, __name__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_lean", [True, False])
def test_the_agent_has_no_modules(is_lean: bool, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(PROGRAM)
    command = [sys.executable, *[lean_agent.__file__] * is_lean, str(tmp_path / "agent.py"), "--a", "b"]
    command.append(str(Path(lean_agent.__file__).parent))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, rest = done.stdout.strip().split(" ", 1)
    assert (int(count) == 0) == is_lean
    assert rest == f"['--a', 'b'] ['{tmp_path}'] __main__"
