"""Files that start a cluster: against the schemas of Ray and KubeRay, fields that SkyPilot documents, and run here.

No machine of a cloud was asked. kuberay-1.6.2.json is the custom resource of KubeRay, shortened. What SkyPilot takes is
written down below, from its YAML specification (docs.skypilot.co/en/latest/reference/yaml-spec.html), as read on
2026-11-25.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from orchestration.config import load_cluster
from preprocessing.errors import Preempted
from tests.golden import text

ROOT = Path(__file__).parents[3]
START = ROOT / "orchestration" / "clusters" / "start"
MAPPING, WORD, NUMBER = dict, str, int

SKY = {
    "name": WORD,
    "num_nodes": NUMBER,
    "resources": MAPPING,
    "volumes": MAPPING,
    "envs": MAPPING,
    "secrets": MAPPING,
    "run": WORD,
}
SKY_RESOURCES = {"infra": WORD, "accelerators": WORD, "image_id": WORD, "job_recovery": MAPPING}


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((START / name).read_text()))


def fits(values: dict[str, Any], fields: dict[str, type]) -> dict[str, Any]:
    """The values, each of which is one of the fields, and of its type."""
    assert {key: type(value) for key, value in values.items()} == {key: fields.get(key) for key in values}
    return values


def pinned(package: str) -> str:
    """The version of constraints.txt."""
    return re.search(rf"^{package}==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]  # type: ignore[index]


def commands() -> list[list[str]]:
    """The commands of `sesame` in the files of this folder."""
    shown = "\n".join(path.read_text() for path in START.iterdir())
    found = re.findall(r"(?:slurm\.sh|sesame) ((?:run|submit|train) [^\n`]*--cluster [^\n`]*)", shown)
    return [shlex.split(line) for line in found]


def test_commands_of_these_files_name_recipes_and_clusters_that_there_are() -> None:
    assert len(commands()) >= 3
    for _, _, *words in commands():
        cluster = words[words.index("--cluster") + 1]
        if not cluster.startswith("$"):
            assert load_cluster(cluster).ray_address == "auto"
    assert load_cluster(documents("skypilot.yaml")[0]["envs"]["CLUSTER"]).ray_address == "auto"


def test_every_file_runs_ray_with_a_token_and_opens_no_dashboard() -> None:
    for name in ("ray_up.yaml", "slurm.sh", "skypilot.yaml", "Dockerfile"):
        assert "RAY_AUTH_MODE=token" in (START / name).read_text(), name
    for name in ("ray_up.yaml", "slurm.sh", "skypilot.yaml"):
        started = re.findall(r"ray start --head[^\n]*|ray_on [^\n]*--head[^\n]*", (START / name).read_text())
        assert started
        assert all("--dashboard-host=127.0.0.1" in one or "--include-dashboard=false" in one for one in started), name
        assert "0.0.0.0" not in (START / name).read_text()


def test_no_file_holds_a_credential() -> None:
    for path in START.iterdir():
        found = re.findall(r"(?i)(?:token|secret|password|key)\w*[=:] *([\w./+-]{16,})", path.read_text())
        assert not found, path


# ray up


def test_the_file_for_ray_up_fits_the_schema_of_the_pinned_ray() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    (config,) = documents("ray_up.yaml")
    validate_config(filled := prepare_config(config))  # as `ray up` does
    assert filled["head_start_ray_commands"] == config["head_start_ray_commands"]
    assert sum(kind.get("min_workers", 0) for kind in config["available_node_types"].values()) == config["max_workers"]
    with pytest.raises(Exception, match="max_workrs"):
        validate_config(filled | {"max_workrs": 3})


# KubeRay


def closed(schema: Any) -> Any:
    """The schema with unknown fields forbidden wherever it names some, as `kubectl` does."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inner} if isinstance(inner.get("properties"), dict) else inner


def wrong(job: Any) -> list[str]:
    """Where a RayJob is none by the schema of KubeRay's custom resource, and why."""
    schema = closed(json.loads((Path(__file__).with_name("kuberay-1.6.2.json")).read_text())["schema"])
    errors = jsonschema.Draft7Validator(schema).iter_errors(job)
    return [f"{'.'.join(map(str, one.absolute_path))}: {one.message}" for one in errors]


def test_the_file_for_kuberay_fits_the_schema_of_its_custom_resource() -> None:
    job, policy = documents("kuberay.yaml")
    assert wrong(job) == []
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert re.fullmatch("[a-z]([-a-z0-9]{0,45}[a-z0-9])?", job["metadata"]["name"])  # KubeRay adds to it
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["rayVersion"] == pinned("ray")
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        (container,) = pod["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"  # inside of the cluster alone
    assert job["spec"]["backoffLimit"] == 0  # bad input is not tried again
    assert (policy["kind"], policy["apiVersion"]) == ("NetworkPolicy", "networking.k8s.io/v1")
    assert policy["spec"]["policyTypes"] == ["Ingress"]


POD = "spec.rayClusterSpec.workerGroupSpecs.0.template.spec"


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("spec.backoffLimt", 3, "spec: Additional properties are not allowed ('backoffLimt' was unexpected)"),
        ("spec.backoffLimit", "3", "spec.backoffLimit: '3' is not of type 'integer'"),
        ("spec.submissionMode", 1, "spec.submissionMode: 1 is not of type 'string'"),
        ("spec.rayClusterSpec.authOptions.mode", "tokens", "'tokens' is not one of ['disabled', 'token']"),
        ("spec.rayClusterSpec.headGroupSpec.rayStartParams.num-cpus", 0, "num-cpus: 0 is not of type 'string'"),
        ("spec.rayClusterSpec.headGroupSpec.tmplate", {}, "('tmplate' was unexpected)"),
        (f"{POD}.terminationGracePeriod", 1, "('terminationGracePeriod' was unexpected)"),
        (f"{POD}.securityContext.runAsNonroot", True, "('runAsNonroot' was unexpected)"),
        (f"{POD}.containers.0.volumeMounts.0.mountpath", "/x", "('mountpath' was unexpected)"),
        (f"{POD}.containers.0.securityContext.capabilities.drops", [], "('drops' was unexpected)"),
        (f"{POD}.containers.0.resources.limits.memory", [], "memory: [] is not "),
        (f"{POD}.containers.0.env.0.values", "0", "('values' was unexpected)"),
        (f"{POD}.volumes.1.emptyDir.size", "1Gi", "('size' was unexpected)"),
        (f"{POD}.volumes.0.persistentVolumeClaim.claim", "x", "('claim' was unexpected)"),
    ],
)
def test_a_fault_anywhere_in_the_file_for_kuberay_is_seen(where: str, value: Any, said: str) -> None:
    job, _ = documents("kuberay.yaml")
    *path, last = where.split(".")
    place = job
    for step in path:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    assert said in wrong(job)[0]


def test_its_machines_have_what_its_cluster_file_asks_for() -> None:
    spec = documents("kuberay.yaml")[0]["spec"]
    cluster = load_cluster(re.search(r"--cluster (\S+)", spec["entrypoint"])[1])  # type: ignore[index]
    (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    has = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert group["replicas"] * int(has["nvidia.com/gpu"]) == cluster.num_workers * cluster.gpus_per_worker
    assert group["replicas"] * int(has["cpu"]) == cluster.num_workers * cluster.cpus_per_worker


# SkyPilot


def test_the_file_for_skypilot_has_fields_of_its_specification() -> None:
    (task,) = documents("skypilot.yaml")
    fits(task, SKY)
    fits(task["resources"], SKY_RESOURCES)
    assert task["resources"]["job_recovery"] == {"recover_on_exit_codes": [Preempted.exit_code]}  # no error is repeated
    assert task["resources"]["infra"] == "kubernetes"  # where `volumes` are
    assert set(task["secrets"].values()) == {None}
    cluster = load_cluster(task["envs"]["CLUSTER"])
    assert task["num_nodes"] * int(task["resources"]["accelerators"].split(":")[1]) == cluster.num_workers
    subprocess.run(["bash", "-n"], input=task["run"], text=True, check=True)


# The image


def instructions() -> list[tuple[str, str]]:
    """Those of the Dockerfile, with their arguments, lines joined."""
    lines = (START / "Dockerfile").read_text()
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", lines, flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


def test_the_image_holds_what_make_setup_installs_and_all_that_it_reads() -> None:
    found = instructions()
    known = {"FROM", "RUN", "USER", "WORKDIR", "COPY", "ENV", "CMD", "ENTRYPOINT"}
    assert {word for word, _ in found} <= known
    runs = [rest for word, rest in found if word == "RUN"]
    assert runs[-1].startswith("make setup")  # the one way that there is, pinned by constraints.txt
    copied = [word for kind, rest in found if kind == "COPY" and "--from" not in rest for word in rest.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
    needs = {"Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "sesame.py"}
    assert {*copied} == needs | {"orchestration", "pipeline", "preprocessing", "training"}
    users = [number for number, (word, _) in enumerate(found) if word == "USER"]
    assert users
    assert found[users[0]][1] == "sesame"
    assert found[users[0] + 1 :].index(("RUN", runs[-1]))  # nobody is root where packages are installed
    said = dict(found)
    assert "latest" not in said["FROM"]
    assert any(f"sdk:{pinned('apache-beam')} " in rest for _, rest in found)
    assert f"python{sys.version_info.major}.{sys.version_info.minor}" in "".join(rest for _, rest in found)


def test_the_makefile_can_be_read_where_the_image_runs_it(tmp_path: Path) -> None:
    """What setup would do there, with the files that the image has by then."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    words = next(rest for word, rest in instructions() if word == "RUN" and rest.startswith("make")).split()
    said = subprocess.run([*words, "--dry-run"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "torch==" + pinned("torch") in said
    assert "-c constraints.txt" in said


# SLURM

SRUN = """#!/bin/bash
# a machine is this one: runs a command as srun would on it
while [[ $1 == --* ]]; do [[ $1 == --nodelist=* ]] && node=${1#*=}; shift; done
echo "srun $node, $SRUN_CPUS_PER_TASK cores: $*" >>"$CALLS"
[[ $1 == ray ]] && set -- "$@" --num-cpus=1 --object-store-memory=100000000
exec "$@"
"""
SCONTROL = """#!/bin/bash
echo "scontrol $*" >>"$CALLS"
[[ $1 == show ]] && printf '%s\\n' machine1 machine2
true
"""


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """The environment of a job on two machines, both of which are this one."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, code in (("srun", SRUN), ("scontrol", SCONTROL)):
        (programs / name).write_text(code)
        (programs / name).chmod(0o755)
    variables = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "machine[1-2]",
        "SLURM_CPUS_PER_TASK": "2",
        "CALLS": str(tmp_path / "calls"),
    }
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return kept | variables | {"SLURM_SUBMIT_DIR": str(ROOT), "PATH": path, "PYTHONPATH": str(ROOT)}


def test_the_script_for_slurm_is_one_of_bash_and_asks_for_time_to_write_a_checkpoint() -> None:
    script = START / "slurm.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)$", script.read_text(), re.MULTILINE))
    assert asked["signal"].startswith("B:TERM@")
    assert int(asked["signal"].partition("@")[2]) >= 120
    assert {"requeue", "exclusive", "open-mode"} <= set(asked)
    assert asked["ntasks-per-node"] == "1"
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize(("ends", "code", "requeued"), [("75", 75, True), ("0", 0, False), ("2", 2, False)])
def test_a_job_of_slurm_that_is_stopped_is_queued_again(
    slurm: dict[str, str], tmp_path: Path, ends: str, code: int, requeued: bool
) -> None:
    """With stubs for Ray and the training: SIGTERM reaches this, its checkpoint is waited for, and Ray is ended."""
    stubs = tmp_path / ".venv" / "bin"
    stubs.mkdir(parents=True)
    kinds = {
        "ray": 'echo "ray began" >>"$CALLS"; trap "echo ray ended >>$CALLS; exit" TERM; while :; do sleep 0.05; done',
        "python": "true",
        "sesame": f'trap "sleep 0.5; echo checkpoint >>$CALLS; exit {ends}" TERM; echo "sesame $*" >>"$CALLS"\n'
        "while :; do sleep 0.05; done",
    }
    for name, script in kinds.items():
        (stubs / name).write_text(f"#!/bin/bash\n{script}\n")
        (stubs / name).chmod(0o755)
    calls = tmp_path / "calls"
    words = ["bash", str(START / "slurm.sh"), "run", "bert_base", "--data", "my text"]
    job = subprocess.Popen(words, env=slurm | {"SLURM_SUBMIT_DIR": str(tmp_path)}, start_new_session=True)
    try:
        upto = time.monotonic() + 60
        while not calls.exists() or "sesame run" not in calls.read_text():
            assert time.monotonic() < upto
            assert job.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)  # its trap is set
        job.send_signal(signal.SIGTERM)  # B: to the script alone
        assert job.wait(30) == code
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    said = calls.read_text()
    assert "sesame run bert_base --data my text\n" in said
    assert "checkpoint\n" in said
    assert (f"scontrol requeue {slurm['SLURM_JOB_ID']}" in said) == requeued
    assert said.count("ray began") == said.count("ray ended") == 2


@pytest.mark.parametrize(
    ("addresses", "head"),
    [
        ("127.0.1.1 192.0.2.7 192.0.2.8", "192.0.2.7"),
        ("::1 2001:db8::7 127.0.0.1 10.127.0.1", "10.127.0.1"),
        ("127.0.0.1 2001:db8::7", ""),
        ("", ""),
    ],
)
def test_the_head_of_slurm_has_an_address_that_others_reach(
    slurm: dict[str, str], tmp_path: Path, addresses: str, head: str
) -> None:
    """Debian's 127.0.1.1 stands for the name of a machine: each of them would look for Ray on itself."""
    stubs = tmp_path / ".venv" / "bin"
    stubs.mkdir(parents=True)
    kinds = {"ray": 'trap "exit" TERM; while :; do sleep 0.05; done', "python": "true"}
    kinds |= {"hostname": f'[[ "$*" == --all-ip-addresses ]] && echo "{addresses}"', "sesame": 'echo "$RAY_ADDRESS"'}
    for name, script in kinds.items():
        (stubs / name).write_text(f"#!/bin/bash\n{script}\n")
        (stubs / name).chmod(0o755)
    words = ["bash", str(START / "slurm.sh"), "run", "bert_base"]
    job = subprocess.run(
        words, env=slurm | {"SLURM_SUBMIT_DIR": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )
    if head:
        assert (job.returncode, job.stdout.rpartition(":")[0]) == (0, head)
        assert re.search(rf"machine1, 2 cores: ray start .*--node-ip-address={head} ", (tmp_path / "calls").read_text())
    else:
        assert job.returncode == 4
        assert job.stderr == "slurm.sh: machine1 has no IPv4 address that others reach\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_script_for_slurm_trains_on_two_machines(slurm: dict[str, str], tmp_path: Path) -> None:
    """Two Rays on this machine, one cluster: the training has a worker on each, and no process is left."""
    text.write(tmp_path / "text.jsonl", num_documents=300)
    (tmp_path / "two.yaml").write_text("name: two\nray_address: auto\nnum_workers: 2\nsample_prompts: []\n")
    words = [
        "run",
        "gpt2",
        'phases=[{"seq_length": 32, "global_batch_size": 8,"steps":6}]',
        "optimizer.warmup_steps=2",
        "eval_tasks=[]",
    ]
    place = ["--scale", "tiny", "--cluster", str(tmp_path / "two.yaml"), "--data", str(tmp_path / "text.jsonl")]
    command = ["bash", str(START / "slurm.sh"), *words, *place, "--output-dir", str(tmp_path / "out"), "--json"]
    job = subprocess.Popen(
        command, env=slurm, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, said = job.communicate(timeout=800)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, said
    answer = json.loads(out[out.index("{") :])
    assert answer["result"]["step"] == 6
    calls = (tmp_path / "calls").read_text()
    assert "srun machine1, 2 cores: ray start --block" in calls
    assert "srun machine2, 2 cores: ray start --block" in calls
    left = subprocess.run(["ps", "-o", "args=", "-g", str(job.pid)], capture_output=True, text=True).stdout
    assert "ray" not in left


def test_the_guide_names_each_of_these_files_and_its_commands_are_theirs() -> None:
    readme = (ROOT / "docs/guides/clusters.md").read_text()
    for path in START.iterdir():
        assert f"`{path.name}`" in readme, path
        shown = re.findall(rf"`((?:ray up|kubectl|sbatch|sky|docker) [^`]*{re.escape(path.name)}[^`]*)`", readme)
        assert shown, path
        words = " ".join(line.lstrip("# ") for line in path.read_text().splitlines())
        assert all(command in words for command in shown), shown
