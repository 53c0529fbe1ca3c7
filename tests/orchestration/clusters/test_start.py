"""Check the files that start a cluster against the schemas of Ray and KubeRay and the documented fields of SkyPilot.

Some files also run on this machine; none was tested in a cloud. kuberay-1.6.2.json is a shortened copy of KubeRay's
custom resource definition. The SkyPilot fields below were copied from its YAML specification
(docs.skypilot.co/en/latest/reference/yaml-spec.html) on 2026-11-25.
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

from orchestration.config import list_names, load_cluster
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


def load_documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((START / name).read_text()))


def check_fields(values: dict[str, Any], fields: dict[str, type]) -> dict[str, Any]:
    """Return the values after checking that each key is a known field and that its value has the type of the field."""
    assert {key: type(value) for key, value in values.items()} == {key: fields.get(key) for key in values}
    return values


def pinned_version(package: str) -> str:
    """Return the package's version in constraints.txt."""
    return re.search(rf"^{package}==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]  # type: ignore[index]


def sesame_commands() -> list[list[str]]:
    """Return the `sesame` commands with --cluster that the files of this directory contain."""
    shown = "\n".join(path.read_text() for path in START.iterdir())
    found = re.findall(r"(?:slurm\.sh|sesame) ((?:run|submit|train) [^\n`]*--cluster [^\n`]*)", shown)
    return [shlex.split(line) for line in found]


def test_commands_name_existing_clusters() -> None:
    assert len(sesame_commands()) >= 3
    for _, _, *words in sesame_commands():
        cluster = words[words.index("--cluster") + 1]
        if not cluster.startswith("$"):
            assert load_cluster(cluster).ray_address == "auto"
    assert load_cluster(load_documents("skypilot.yaml")[0]["envs"]["CLUSTER"]).ray_address == "auto"


def test_every_file_uses_token_authentication_and_keeps_the_dashboard_local() -> None:
    for name in ("ray_up.yaml", "slurm.sh", "skypilot.yaml", "Dockerfile"):
        assert "RAY_AUTH_MODE=token" in (START / name).read_text(), name
    for name in ("ray_up.yaml", "slurm.sh", "skypilot.yaml"):
        started = re.findall(r"ray start --head[^\n]*|ray_on [^\n]*--head[^\n]*", (START / name).read_text())
        assert started
        assert all("--dashboard-host=127.0.0.1" in one or "--include-dashboard=false" in one for one in started), name
        assert "0.0.0.0" not in (START / name).read_text()


def test_no_file_contains_a_credential() -> None:
    for path in START.iterdir():
        found = re.findall(r"(?i)(?:token|secret|password|key)\w*[=:] *([\w./+-]{16,})", path.read_text())
        assert not found, path


# ray up


def test_ray_up_file_matches_the_schema_of_the_pinned_ray() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    (config,) = load_documents("ray_up.yaml")
    validate_config(filled := prepare_config(config))  # `ray up` calls the same two functions
    assert filled["head_start_ray_commands"] == config["head_start_ray_commands"]
    assert sum(kind.get("min_workers", 0) for kind in config["available_node_types"].values()) == config["max_workers"]
    with pytest.raises(Exception, match="max_workrs"):
        validate_config(filled | {"max_workrs": 3})


# KubeRay


def forbid_unknown_fields(schema: Any) -> Any:
    """Return the schema with unknown fields forbidden in every object that declares its properties, as `kubectl`
    does."""
    if isinstance(schema, list):
        return [forbid_unknown_fields(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: forbid_unknown_fields(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inner} if isinstance(inner.get("properties"), dict) else inner


def schema_errors(job: Any) -> list[str]:
    """Return each violation of KubeRay's custom resource schema, with its location."""
    schema = forbid_unknown_fields(json.loads((Path(__file__).with_name("kuberay-1.6.2.json")).read_text())["schema"])
    errors = jsonschema.Draft7Validator(schema).iter_errors(job)
    return [f"{'.'.join(map(str, one.absolute_path))}: {one.message}" for one in errors]


def test_kuberay_file_matches_the_custom_resource_schema() -> None:
    job, policy = load_documents("kuberay.yaml")
    assert schema_errors(job) == []
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert re.fullmatch("[a-z]([-a-z0-9]{0,45}[a-z0-9])?", job["metadata"]["name"])  # KubeRay appends a suffix
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["rayVersion"] == pinned_version("ray")
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        (container,) = pod["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"  # reachable only inside the cluster
    assert job["spec"]["backoffLimit"] == 0  # invalid input is not retried
    assert (policy["kind"], policy["apiVersion"]) == ("NetworkPolicy", "networking.k8s.io/v1")
    assert policy["spec"]["policyTypes"] == ["Ingress"]


POD = "spec.rayClusterSpec.workerGroupSpecs.0.template.spec"


@pytest.mark.parametrize(
    ("where", "value", "message"),
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
def test_schema_check_finds_an_error_anywhere_in_the_kuberay_file(where: str, value: Any, message: str) -> None:
    job, _ = load_documents("kuberay.yaml")
    *path, last = where.split(".")
    place = job
    for step in path:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    assert message in schema_errors(job)[0]


def test_kuberay_workers_have_the_resources_of_the_cluster_file() -> None:
    spec = load_documents("kuberay.yaml")[0]["spec"]
    cluster = load_cluster(re.search(r"--cluster (\S+)", spec["entrypoint"])[1])  # type: ignore[index]
    (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    has = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert group["replicas"] * int(has["nvidia.com/gpu"]) == cluster.num_workers * cluster.gpus_per_worker
    assert group["replicas"] * int(has["cpu"]) == cluster.num_workers * cluster.cpus_per_worker


# SkyPilot


def test_skypilot_file_uses_only_documented_fields() -> None:
    (task,) = load_documents("skypilot.yaml")
    check_fields(task, SKY)
    check_fields(task["resources"], SKY_RESOURCES)
    # errors are not retried
    assert task["resources"]["job_recovery"] == {"recover_on_exit_codes": [Preempted.exit_code]}
    assert task["resources"]["infra"] == "kubernetes"  # the `volumes` key requires Kubernetes
    assert set(task["secrets"].values()) == {None}
    cluster = load_cluster(task["envs"]["CLUSTER"])
    assert task["num_nodes"] * int(task["resources"]["accelerators"].split(":")[1]) == cluster.num_workers
    subprocess.run(["bash", "-n"], input=task["run"], text=True, check=True)


# The image


def dockerfile_instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments; continuation lines are joined."""
    lines = (START / "Dockerfile").read_text()
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", lines, flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


def test_image_runs_make_setup_and_copies_every_needed_file() -> None:
    found = dockerfile_instructions()
    known = {"FROM", "RUN", "USER", "WORKDIR", "COPY", "ENV", "CMD", "ENTRYPOINT"}
    assert {word for word, _ in found} <= known
    runs = [rest for word, rest in found if word == "RUN"]
    assert runs[-1].startswith("make setup")  # the only documented installation, pinned by constraints.txt
    copied = [word for kind, rest in found if kind == "COPY" and "--from" not in rest for word in rest.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
    needs = {"Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "sesame.py"}
    assert {*copied} == needs | {"orchestration", "pipeline", "preprocessing", "training"}
    users = [number for number, (word, _) in enumerate(found) if word == "USER"]
    assert users
    assert found[users[0]][1] == "sesame"
    assert found[users[0] + 1 :].index(("RUN", runs[-1]))  # packages are not installed as root
    message = dict(found)
    assert "latest" not in message["FROM"]
    assert any(f"sdk:{pinned_version('apache-beam')} " in rest for _, rest in found)
    images = re.findall(r"python:?(3\.\d+)", " ".join(rest for word, rest in found if word in ("FROM", "COPY")))
    assert len(images) == 2  # of the image and of Beam's entry point
    assert len({*images}) == 1


def test_make_setup_works_at_its_step_of_the_image_build(tmp_path: Path) -> None:
    """A dry run of `make setup` works with the files that the image has copied before this step."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    words = next(rest for word, rest in dockerfile_instructions() if word == "RUN" and rest.startswith("make")).split()
    message = subprocess.run([*words, "--dry-run"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "torch==" + pinned_version("torch") in message
    assert "-c constraints.txt" in message


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
def slurm_environment(tmp_path: Path) -> dict[str, str]:
    """Environment of a job on two nodes; this machine stands for both."""
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


def test_slurm_script_is_valid_bash_and_requests_time_for_a_checkpoint() -> None:
    script = START / "slurm.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)$", script.read_text(), re.MULTILINE))
    assert asked["signal"].startswith("B:TERM@")
    assert int(asked["signal"].partition("@")[2]) >= 120
    assert {"requeue", "exclusive", "open-mode"} <= set(asked)
    assert asked["ntasks-per-node"] == "1"
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize(("exit_status", "code", "requeued"), [("75", 75, True), ("0", 0, False), ("2", 2, False)])
def test_preempted_slurm_job_is_requeued(
    slurm_environment: dict[str, str], tmp_path: Path, exit_status: str, code: int, requeued: bool
) -> None:
    """Ray and the training are stubs. The script forwards SIGTERM, waits for the checkpoint, and stops Ray."""
    stubs = tmp_path / ".venv" / "bin"
    stubs.mkdir(parents=True)
    kinds = {
        "ray": 'echo "ray began" >>"$CALLS"; trap "echo ray ended >>$CALLS; exit" TERM; while :; do sleep 0.05; done',
        "python": "true",
        "sesame": f'trap "sleep 0.5; echo checkpoint >>$CALLS; exit {exit_status}" TERM; echo "sesame $*" >>"$CALLS"\n'
        "while :; do sleep 0.05; done",
    }
    for name, script in kinds.items():
        (stubs / name).write_text(f"#!/bin/bash\n{script}\n")
        (stubs / name).chmod(0o755)
    calls = tmp_path / "calls"
    words = ["bash", str(START / "slurm.sh"), "run", "bert_base", "--data", "my text"]
    job = subprocess.Popen(words, env=slurm_environment | {"SLURM_SUBMIT_DIR": str(tmp_path)}, start_new_session=True)
    try:
        upto = time.monotonic() + 60
        while not calls.exists() or "sesame run" not in calls.read_text():
            assert time.monotonic() < upto
            assert job.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)  # wait until the stub has set its trap
        job.send_signal(signal.SIGTERM)  # #SBATCH signal B: only the script gets it
        assert job.wait(30) == code
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    message = calls.read_text()
    assert "sesame run bert_base --data my text\n" in message
    assert "checkpoint\n" in message
    assert (f"scontrol requeue {slurm_environment['SLURM_JOB_ID']}" in message) == requeued
    assert message.count("ray began") == message.count("ray ended") == 2


@pytest.mark.parametrize(
    ("addresses", "head"),
    [
        ("127.0.1.1 192.0.2.7 192.0.2.8", "192.0.2.7"),
        ("::1 2001:db8::7 127.0.0.1 10.127.0.1", "10.127.0.1"),
        ("127.0.0.1 2001:db8::7", ""),
        ("", ""),
    ],
)
def test_slurm_head_gets_an_address_that_other_nodes_can_reach(
    slurm_environment: dict[str, str], tmp_path: Path, addresses: str, head: str
) -> None:
    """Debian maps the host name to 127.0.1.1, so each node would look for Ray on itself."""
    stubs = tmp_path / ".venv" / "bin"
    stubs.mkdir(parents=True)
    kinds = {"ray": 'trap "exit" TERM; while :; do sleep 0.05; done', "python": "true"}
    kinds |= {"hostname": f'[[ "$*" == --all-ip-addresses ]] && echo "{addresses}"', "sesame": 'echo "$RAY_ADDRESS"'}
    for name, script in kinds.items():
        (stubs / name).write_text(f"#!/bin/bash\n{script}\n")
        (stubs / name).chmod(0o755)
    words = ["bash", str(START / "slurm.sh"), "run", "bert_base"]
    job = subprocess.run(
        words, env=slurm_environment | {"SLURM_SUBMIT_DIR": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )
    if head:
        assert (job.returncode, job.stdout.rpartition(":")[0]) == (0, head)
        assert re.search(rf"machine1, 2 cores: ray start .*--node-ip-address={head} ", (tmp_path / "calls").read_text())
    else:
        assert job.returncode == 4
        assert job.stderr == "slurm.sh: machine1 has no IPv4 address that others reach\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_slurm_script_trains_on_two_nodes(slurm_environment: dict[str, str], tmp_path: Path) -> None:
    """Two Ray nodes on this machine form one cluster: each runs one training worker, and no process is left."""
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
        command,
        env=slurm_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, message = job.communicate(timeout=800)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, message
    answer = json.loads(out[out.index("{") :])
    assert answer["result"]["step"] == 6
    calls = (tmp_path / "calls").read_text()
    assert "srun machine1, 2 cores: ray start --block" in calls
    assert "srun machine2, 2 cores: ray start --block" in calls
    left = subprocess.run(["ps", "-o", "args=", "-g", str(job.pid)], capture_output=True, text=True).stdout
    assert "ray" not in left


def test_guide_names_each_file_and_quotes_its_commands() -> None:
    readme = (ROOT / "docs/guides/clusters.md").read_text()
    for path in START.iterdir():
        assert f"`{path.name}`" in readme, path
        shown = re.findall(rf"`((?:ray up|kubectl|sbatch|sky|docker) [^`]*{re.escape(path.name)}[^`]*)`", readme)
        assert shown, path
        words = " ".join(line.lstrip("# ") for line in path.read_text().splitlines())
        assert all(command in words for command in shown), shown


def test_guide_lists_each_cluster_file() -> None:
    """`64xh100` was missing in the table."""
    guide = (ROOT / "docs/guides/clusters.md").read_text()
    table = guide.partition("| name | workers |")[2].partition("##")[0]
    assert set(re.findall(r"`(\w+)`", re.sub(r"\|[^|]*\|$", "|", table, flags=re.MULTILINE))) == set(
        list_names("clusters")
    )
