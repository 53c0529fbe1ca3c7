"""Cores and memory limits of a process, tested on copies of kernel file trees, and on this kernel."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from preprocessing import limits
from preprocessing.limits import Cores

GIB = 2**30
UNLIMITED = str(0x7FFFFFFFFFFFF000)  # the value of cgroup version 1 for "no limit"
SECOND = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
FIRST = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
FIRST_CPU = "32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
OTHERS = "23 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n24 23 0:5 / /proc rw - proc proc rw"
V2, V1, CPU_1 = "sys/fs/cgroup", "sys/fs/cgroup/memory", "sys/fs/cgroup/cpu,cpuacct"


def tree(root: Path, groups: str, mounts: str, files: Mapping[str, object], total: int = 64 * GIB) -> Path:
    """Create a root directory with this /proc/self/cgroup, this /proc/self/mountinfo and these files."""
    meminfo = f"MemTotal:       {total // 1024} kB\nMemFree:  4096 kB\nMemAvailable:   {total // 2 // 1024} kB\n"
    kernel = {"proc/self/cgroup": groups, "proc/self/mountinfo": f"{OTHERS}\n{mounts}\n", "proc/meminfo": meminfo}
    for name, text in {**kernel, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "limit"),
    [
        pytest.param("0::/", SECOND, {f"{V2}/cgroup.procs": "1"}, 64, id="root cgroup without a limit"),
        pytest.param("0::/a/b", SECOND, {f"{V2}/a/b/memory.max": 2 * GIB}, 2, id="v2, nested"),
        pytest.param(
            "0::/a/b/c", SECOND,
            {f"{V2}/a/memory.max": 3 * GIB, f"{V2}/a/b/memory.max": "max", f"{V2}/a/b/c/memory.max": 5 * GIB},
            3, id="v2, the smallest limit is an ancestor's"),
        pytest.param("0::/a", SECOND, {f"{V2}/a/memory.max": "max", f"{V2}/a/memory.high": GIB}, 1, id="v2, high"),
        pytest.param("0::/a", SECOND, {f"{V2}/a/memory.max": GIB, f"{V2}/a/memory.high": "max"}, 1, id="v2, high max"),
        pytest.param("0::/a", SECOND, {f"{V2}/a/memory.max": 999 * GIB}, 64, id="v2, limit above the machine's memory"),
        pytest.param("0::/", SECOND, {f"{V2}/memory.max": 2 * GIB}, 2, id="v2, root of a namespace"),
        pytest.param("0::/../..", SECOND, {f"{V2}/memory.max": 2 * GIB}, 2, id="v2, above a namespace"),
        pytest.param("0::/gone", SECOND, {f"{V2}/memory.max": 2 * GIB}, 2, id="v2, cgroup path does not exist"),
        pytest.param(
            "0::/docker/1", SECOND.replace(" / /sys", " /docker/1 /sys"), {f"{V2}/memory.max": 2 * GIB},
            2, id="v2, mounted at the cgroup"),
        pytest.param(
            "0::/docker/1/in", SECOND.replace(" / /sys", " /docker/1 /sys"), {f"{V2}/in/memory.max": 2 * GIB},
            2, id="v2, cgroup below the mounted one"),
        pytest.param(
            "0::/", SECOND.replace(" / /sys", " /../.. /sys"),
            {f"{V2}/k/pod/memory.max": 2 * GIB, f"{V2}/k/pod/cgroup.procs": f"1\n{os.getpid()}",
             f"{V2}/k/other/memory.max": GIB, f"{V2}/k/other/cgroup.procs": "2"},
            2, id="v2, host cgroups inside a namespace"),
        pytest.param("4:memory:/a/b\n0::/", FIRST, {f"{V1}/a/b/memory.limit_in_bytes": 2 * GIB}, 2, id="v1, nested"),
        pytest.param(
            "4:memory:/a/b", FIRST,
            {f"{V1}/a/memory.limit_in_bytes": 3 * GIB, f"{V1}/a/b/memory.limit_in_bytes": UNLIMITED},
            3, id="v1, above"),
        pytest.param("4:memory:/a", FIRST, {f"{V1}/a/memory.limit_in_bytes": UNLIMITED}, 64, id="v1, unlimited"),
        pytest.param(
            "4:memory:/a", FIRST,
            {f"{V1}/a/memory.limit_in_bytes": UNLIMITED, f"{V1}/a/memory.stat": f"hierarchical_memory_limit {GIB}"},
            1, id="v1, limit of an invisible ancestor"),
        pytest.param(
            "4:memory:/docker/1", FIRST.replace(" / /sys", " /docker/1 /sys"),
            {f"{V1}/memory.limit_in_bytes": 2 * GIB}, 2, id="v1, container without a namespace"),
        pytest.param(
            "4:memory:/kube/pod/1/in", FIRST.replace(" / /sys", " /other /sys"),
            {f"{V1}/1/in/memory.limit_in_bytes": 2 * GIB}, 2, id="v1, last parts of a host path"),
        pytest.param(
            "4:cpuset,memory:/a", FIRST.replace("rw,memory", "rw,cpuset,memory"),
            {f"{V1}/a/memory.limit_in_bytes": 2 * GIB}, 2, id="v1, controllers together"),
        pytest.param(
            "4:memory:/a:b", FIRST, {f"{V1}/a:b/memory.limit_in_bytes": 2 * GIB}, 2, id="v1, colon in the name"),
        pytest.param(
            "9:name=systemd:/x\n4:memory:/a\n0::/s", f"{FIRST}\n{SECOND.replace('/cgroup rw', '/cgroup/unified rw')}",
            {f"{V1}/a/memory.limit_in_bytes": 2 * GIB, f"{V2}/unified/s/memory.max": GIB}, 1, id="hybrid, both"),
        pytest.param(
            "0::/a", SECOND.replace("/sys/fs/cgroup rw", r"/c\040g rw"), {"c g/a/memory.max": 2 * GIB},
            2, id="mount point with a blank"),
        pytest.param(
            "0::/a", SECOND.replace(" / /sys/fs/cgroup", " /b /somewhere") + f"\n{SECOND}",
            {f"{V2}/a/memory.max": 2 * GIB, "somewhere/memory.max": GIB}, 2, id="mounted twice"),
        pytest.param("0::/a", "", {}, 64, id="nothing mounted"),
        pytest.param("garbage", SECOND, {f"{V2}/a/memory.max": "?"}, 64, id="unknown lines"),
    ],
)  # fmt: skip
def test_the_smallest_limit_of_all_ancestors_applies(
    groups: str, mounts: str, files: dict[str, object], limit: int, tmp_path: Path
) -> None:
    found = limits.memory(tree(tmp_path, groups, mounts, files))
    assert found.limit == limit * GIB
    assert found.free == min(32, limit) * GIB
    assert bool(found.where) == (limit < 32)


@pytest.mark.parametrize(
    ("version", "stat"),
    [
        (2, f"anon {GIB}\nactive_file {2 * GIB}\ninactive_file {GIB // 2}\nslab_reclaimable {GIB // 2}"),
        (1, f"cache 0\nactive_file 0\ninactive_file 0\ntotal_active_file {2 * GIB}\ntotal_inactive_file {GIB}"),
    ],
)
def test_reclaimable_page_cache_counts_as_free(version: int, stat: str, tmp_path: Path) -> None:
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    groups, mounts, folder = ("0::/a", SECOND, V2) if version == 2 else ("3:memory:/a", FIRST, V1)
    files = {f"{folder}/a/{names[0]}": 8 * GIB, f"{folder}/a/{names[1]}": 5 * GIB, f"{folder}/a/memory.stat": stat}
    found = limits.memory(tree(tmp_path, groups, mounts, files))
    assert (found.free / GIB, found.used / GIB) == (6, 2)


def test_the_cgroup_with_the_least_free_memory_is_named(tmp_path: Path) -> None:
    """The inner cgroup has the smaller limit; the outer one, which other processes fill, has less memory left."""
    files = {
        f"{V2}/a/memory.max": 8 * GIB, f"{V2}/a/memory.current": 7 * GIB,
        f"{V2}/a/b/memory.max": 4 * GIB, f"{V2}/a/b/memory.current": GIB,
    }  # fmt: skip
    root = tree(tmp_path, "0::/a/b", SECOND, files)
    assert limits.memory(root) == limits.MemoryLimit(4 * GIB, GIB, str(root / V2 / "a"))
    assert limits.find_tightest_limit(root) == limits.MemoryLimit(8 * GIB, GIB, str(root / V2 / "a"))


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "number"),
    [
        pytest.param("0::/a", SECOND, {f"{V2}/a/cpu.max": "max 100000"}, 8, id="v2, no quota"),
        pytest.param("0::/a/b", SECOND, {f"{V2}/a/cpu.max": "50000 100000"}, 0.5, id="v2, half a core, on the parent"),
        pytest.param(
            "0::/a/b", SECOND, {f"{V2}/a/cpu.max": "400000 100000", f"{V2}/a/b/cpu.max": "150000 100000"},
            1.5, id="v2, the smallest"),
        pytest.param("0::/a", SECOND, {f"{V2}/a/cpu.max": "1600000 100000"}, 8, id="v2, quota above the affinity"),
        pytest.param("0::/", SECOND, {f"{V2}/cpu.max": "200000 100000"}, 2, id="v2, a namespace"),
        pytest.param(
            "1:cpu,cpuacct:/a", FIRST_CPU,
            {f"{CPU_1}/a/cpu.cfs_quota_us": 25_000, f"{CPU_1}/a/cpu.cfs_period_us": 50_000}, 0.5, id="v1, half a core"),
        pytest.param(
            "1:cpu,cpuacct:/a", FIRST_CPU,
            {f"{CPU_1}/a/cpu.cfs_quota_us": -1, f"{CPU_1}/a/cpu.cfs_period_us": 100_000}, 8, id="v1, no quota"),
        pytest.param(
            "4:cpuset:/a\n2:cpuacct:/a", FIRST_CPU,
            {f"{CPU_1}/a/cpu.cfs_quota_us": 25_000, f"{CPU_1}/a/cpu.cfs_period_us": 50_000}, 8, id="v1, another's"),
    ],
)  # fmt: skip
def test_cores_are_the_minimum_of_affinity_and_quotas(
    groups: str, mounts: str, files: dict[str, object], number: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert limits.cores(tree(tmp_path, groups, mounts, files)).number == number


@pytest.mark.parametrize(("number", "whole"), [(0.05, 1), (0.5, 1), (1.0, 1), (1.99, 1), (2.9999999, 3), (3.5, 3)])
def test_fractional_cores_round_down_to_at_least_one_process(number: float, whole: int) -> None:
    assert Cores(number).whole == whole


@pytest.mark.parametrize(("gib", "number"), [(1, 1), (2, 1), (4, 2), (6, 4), (64, 8)])
def test_the_number_of_processes_is_limited_by_memory(
    gib: int, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert limits.processes(root=tree(tmp_path, "0::/a", SECOND, {f"{V2}/a/memory.max": gib * GIB})) == number


# This kernel

SAYS = "from preprocessing import limits; print(limits.memory().limit, limits.cores().number)"


@pytest.fixture
def groups() -> Iterator[dict[str, Path]]:
    """Create a cgroup per controller, inside a parent with 2 GB and half a core; skip the test on failure."""
    made = dict[str, Path]()
    try:
        for name in ("memory", "cpu"):
            parents = [path for path in (Path("/sys/fs/cgroup") / name, Path("/sys/fs/cgroup")) if path.is_dir()]
            outer = parents[0] / f"sesame-limits-{os.getpid()}"
            (outer / "inner").mkdir(parents=True, exist_ok=True)
            made[name] = outer
            for file, value in (
                ("memory.max", 2_000_003_072), ("memory.limit_in_bytes", 2_000_003_072),
                ("cpu.max", "50000 100000"), ("cpu.cfs_quota_us", "50000"),
            ):  # fmt: skip
                if (outer / file).exists():
                    (outer / file).write_text(str(value))
        yield {name: outer / "inner" for name, outer in made.items()}
    except OSError as error:
        pytest.skip(f"no control groups can be made: {error}")
    finally:
        for outer in dict.fromkeys(made.values()):
            (outer / "inner").rmdir()
            outer.rmdir()


def test_a_process_in_a_real_cgroup_reads_its_limits(groups: dict[str, Path]) -> None:
    joins = "import os, sys\nfor group in sys.argv[1:]:\n open(f'{group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
    command = [sys.executable, "-c", joins + SAYS, *map(str, groups.values())]
    actual = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [float(word) for word in actual] == [2_000_003_072.0, 0.5]


# Who asks

ROOT = Path(__file__).parents[2]
ASKS = re.compile(r"sched_getaffinity|cpu_count|virtual_memory|/sys/fs/cgroup|SC_NPROCESSORS|SC_PHYS_PAGES|MemAvail")


def test_only_the_limits_module_queries_cores_and_memory() -> None:
    """Other code would miss the limits of a cgroup."""
    floors = [ROOT / name for name in ("preprocessing", "pipeline", "training", "orchestration")]
    files = [*(path for floor in floors for path in floor.rglob("*.py")), ROOT / "sesame.py"]
    assert [str(path) for path in files if path.name != "limits.py" and ASKS.search(path.read_text())] == []
