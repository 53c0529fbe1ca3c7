"""Run the agent of Ray's dashboard without its modules, for a Ray that has no dashboard.

Ray 2.60 always starts this process, and each raylet needs it. Its modules report the statistics of all processes every
few seconds, and serve logs and events to the dashboard. Their imports take half of its CPU time at a start. Arguments:
the path of Ray's program, and its arguments.
"""

import runpy
import sys
from pathlib import Path
from types import ModuleType


def main() -> None:
    """Become Ray's program, which then finds no module."""
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)  # as if Python had been started with it
    import ray.dashboard

    empty = ModuleType(f"{ray.dashboard.__name__}.modules")
    empty.__path__ = []
    ray.dashboard.modules = sys.modules[empty.__name__] = empty
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
