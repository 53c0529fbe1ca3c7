"""Security: no code from files is run, no path leaves a directory, no port is open to the network, files are private.

Each test covers an item of the threat model in the README. Credentials are tested in orchestration/test_environment.py
and orchestration/launch/test_environment.py, and local clusters in orchestration/launch/test_local_cluster.py.
"""

import ast
import hashlib
import json
import multiprocessing
import os
import pickle
import re
import stat
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from orchestration import launch
from orchestration.cli import main
from orchestration.config import strict_yaml
from preprocessing.errors import BadInput
from preprocessing.files import from_checked_json, to_checked_json
from preprocessing.manifest import FILE_NAME, Manifest
from tests.orchestration.jobs.test_generation import DECODER, write_finished_run
from tests.training.corpora import mini_corpus
from training import checkpoint
from training.formats import sharded

ROOT = Path(__file__).parents[1]
ROOMS = ("preprocessing", "pipeline", "training", "orchestration")
SOURCES = [ROOT / "sesame.py", *(path for name in ROOMS for path in sorted((ROOT / name).rglob("*.py")))]
LOOPBACK = {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


# Files that run code


UNPICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "pandas"}
RUNS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput"}
EXTRACTS = {"extractall", "unpack_archive", "mktemp", "load_checkpoint", "load_state_dict_from_url", "read_pickle"}
LOADS_SAFELY = {"np.load": "allow_pickle", "numpy.load": "allow_pickle"}  # safe if this argument is False
EVERYWHERE = ("''", "'::'", "None")  # all interfaces, like '0.0.0.0', which must not occur in the sources
BINDS = re.compile(r"bind|create_server|start_server|serve|\w*Server")
LOADERS = ("_Loader", "_FastLoader")  # of strict_yaml
PROBES = {
    ("orchestration/launch/worker.py", "probe.bind listens to the network")
}  # finds a free port; it does not listen


def faults(code: str) -> Iterator[str]:
    """Calls in a source that may run code from data, write outside of a directory, or listen to the network."""
    tree = ast.parse(code)
    names = dict(_imported(tree))  # local name -> full name
    yield from (f"imports {name}" for name in names.values() if name.split(".")[0] in UNPICKLES)
    constants = [one.value for one in ast.walk(tree) if isinstance(one, ast.Constant)]
    yield from ("names 0.0.0.0" for value in constants if value == "0.0.0.0")
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        first, dot, rest = ast.unparse(node.func).partition(".")
        called = (names.get(first, first) + dot + rest).removeprefix("builtins.")
        given = {one.arg: ast.unparse(one.value) for one in node.keywords}
        last = called.rpartition(".")[2]
        if called in RUNS or last in EXTRACTS:
            yield f"calls {called}"
        if given.get("shell") not in (None, "False") or given.get("trust_remote_code") not in (None, "False"):
            yield f"{called} runs code from its argument"
        if called in LOADS_SAFELY and given.get(LOADS_SAFELY[called]) != "False":
            yield f"{called} unpickles"
        if re.fullmatch(r"torch(\.\w+)*\.load|mlflow\.(pyfunc|pytorch)\.load_model", called):
            yield f"{called} unpickles"
        if called.startswith("yaml.") and "load" in last and last != "safe_load" and given.get("Loader") not in LOADERS:
            yield f"{called} makes objects"
        if BINDS.fullmatch(last) and any(_is_everywhere(one) for one in node.args):
            yield f"{called} listens to the network"
        if any(name and name.endswith("host") and text in EVERYWHERE for name, text in given.items()):
            yield f"{called} listens to the network"


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((one.asname, one.name) if one.asname else (one.name.split(".")[0],) * 2 for one in node.names)
            yield from ((one.name, one.name) for one in node.names)
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)


def _is_everywhere(argument: ast.expr) -> bool:
    """Whether an argument is ("", PORT), which means all interfaces."""
    return isinstance(argument, ast.Tuple) and len(argument.elts) > 1 and ast.unparse(argument.elts[0]) in EVERYWHERE


@pytest.mark.parametrize(
    "code",
    ["s.bind(('127.0.0.1', 1))", "s.connect(('', 1))", "safe_load(text)", "np.load(file, allow_pickle=False)",
     "from json import load\nload(file)", "from yaml import safe_load\nsafe_load(text)", "re.compile(text)",
     "subprocess.run(words, shell=False)", "text.replace('::', ':')[0] + '0.0.0.0/0'"],
)  # fmt: skip
def test_safe_code_is_accepted(code: str) -> None:
    assert not list(faults(code))


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("import pickle", "imports pickle"),
        ("from joblib import load", "imports joblib.load"),
        ("import pandas as pd", "imports pandas"),
        ("from torch import load\nload(file)", "torch.load unpickles"),
        ("import torch as t\nt.load(file)", "torch.load unpickles"),
        ("from torch.jit import load as read\nread(file)", "torch.jit.load unpickles"),
        ("from numpy import load\nload(file)", "numpy.load unpickles"),
        ("from yaml import full_load\nfull_load(text)", "yaml.full_load makes objects"),
        ("from os import system\nsystem(text)", "calls os.system"),
        ("from builtins import eval as run\nrun(text)", "calls eval"),
        ("from subprocess import run\nrun(text, shell=1)", "subprocess.run runs code from its argument"),
        ("torch.load(file)", "torch.load unpickles"),
        ("np.load(file)", "np.load unpickles"),
        ("np.load(file, allow_pickle=True)", "np.load unpickles"),
        ("mlflow.pyfunc.load_model(uri)", "mlflow.pyfunc.load_model unpickles"),
        ("yaml.load(text, Loader=yaml.Loader)", "yaml.load makes objects"),
        ("yaml.full_load(text)", "yaml.full_load makes objects"),
        ("eval(text)", "calls eval"),
        ("subprocess.run(text, shell=True)", "subprocess.run runs code from its argument"),
        (
            "AutoModel.from_pretrained(name, trust_remote_code=True)",
            "AutoModel.from_pretrained runs code from its argument",
        ),
        ("archive.extractall(folder)", "calls archive.extractall"),
        ("engine.load_checkpoint(folder)", "calls engine.load_checkpoint"),
        ("s.bind(('0.0.0.0', 1))", "names 0.0.0.0"),
        ("HOST = '0.0.0.0'", "names 0.0.0.0"),
        ("uvicorn.run(app, host='0.0.0.0')", "names 0.0.0.0"),
        ("HTTPServer(('0.0.0.0', 80), H)", "names 0.0.0.0"),
        ("ray.init(dashboard_host='0.0.0.0')", "names 0.0.0.0"),
        ("s.bind(('::', 1))", "s.bind listens to the network"),
        ("s.bind(('', 1))", "s.bind listens to the network"),
        ("HTTPServer(('', 80), H)", "HTTPServer listens to the network"),
        ("socket.create_server(('', 80))", "socket.create_server listens to the network"),
        ("uvicorn.run(app, host='')", "uvicorn.run listens to the network"),
        ("loop.create_server(make, host=None)", "loop.create_server listens to the network"),
    ],
)
def test_unsafe_code_is_detected(code: str, fault: str) -> None:
    assert fault in list(faults(code))


def test_no_source_file_unpickles_data_runs_text_or_extracts_archives() -> None:
    assert len(SOURCES) > 300
    found = {(str(path.relative_to(ROOT)), actual) for path in SOURCES for actual in faults(path.read_text())}
    assert found == PROBES


def test_the_only_yaml_loader_is_a_safe_loader(tmp_path: Path) -> None:
    import yaml

    assert issubclass(strict_yaml._Loader, yaml.SafeLoader)
    assert issubclass(strict_yaml._FastLoader, yaml.CSafeLoader)
    mark = tmp_path / "ran"
    for text in (f"!!python/object/apply:os.mkdir [{mark}]", f"a: !!python/object/new:os.mkdir [{mark}]"):
        with pytest.raises(BadInput, match="tag"):
            strict_yaml.parse(text, "here")
    assert not mark.exists()


class Runs:
    """Creates a directory when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def pickled(file: Path, way: str, mark: Path) -> None:
    """Write a file that creates the directory `mark` when it is unpickled."""
    if way == "torch":
        torch.save({"weights": Runs(mark)}, file)
    else:
        file.write_bytes(pickle.dumps(Runs(mark)))


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """The directory of a finished run of a decoder, with its weights also in the format of transformers."""
    folder = write_finished_run(DECODER, tmp_path / "net")
    with (folder / launch.EXPORT / "config.json").open("r+") as file:
        config = json.load(file) | {"auto_map": {"AutoModel": "evil.Net", "AutoConfig": "evil.Config"}}
        file.seek(0)
        json.dump(config, file)
    (folder / launch.EXPORT / "evil.py").write_text(f"import os; os.mkdir({str(tmp_path / 'ran')!r})")
    return folder


@pytest.mark.parametrize("way", ["pickle", "torch"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.safetensors", "model.safetensors: not a safetensors file"),
        ("pytorch_model.bin", r"only pickled weights \(pytorch_model.bin\)|model.safetensors is missing"),
        ("model.pt", r"only pickled weights \(model.pt\)|model.safetensors is missing"),
    ],
)
def test_pickled_weights_from_elsewhere_run_no_code(
    name: str, message: str, way: str, net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All other files are valid, so each command reaches the weights."""
    mark, folder, out = tmp_path / "ran", net / launch.EXPORT, ["--output-dir", str(tmp_path / "out")]
    assert main(["generate", str(folder), "The", "--max-new-tokens", "2", *out]) == 0
    (folder / "model.safetensors").unlink()
    pickled(folder / name, way, mark)
    for words in (["generate", str(folder), "The"], ["eval", str(folder), "--task", "sst2"]):
        capsys.readouterr()
        assert main([*words, *out]) == 2
        error = capsys.readouterr().err
        assert re.search(message, error)
        assert "Traceback" not in error
    assert not mark.exists()


@pytest.mark.parametrize("way", ["pickle", "torch"])
def test_pickled_weights_in_a_run_directory_run_no_code(
    way: str, net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark, weights = tmp_path / "ran", net / launch.WEIGHTS / "weights.safetensors"
    before = hashlib.sha256(weights.read_bytes()).hexdigest()
    pickled(weights, way, mark)
    spec = weights.with_name("spec.json")
    text = spec.read_text()
    assert before in text
    spec.write_text(text.replace(before, hashlib.sha256(weights.read_bytes()).hexdigest()))  # with the correct hash
    for words in (["generate", str(net), "The"], ["export", str(net), str(tmp_path / "to")]):
        capsys.readouterr()
        assert main([*words, "--output-dir", str(tmp_path / "out")]) == 2
        assert "weights.safetensors: not a safetensors file" in capsys.readouterr().err
    assert not mark.exists()


def test_a_pickled_array_or_corpus_runs_no_code(tmp_path: Path) -> None:
    import numpy as np

    mark, text = tmp_path / "ran", tmp_path / "text"
    text.mkdir()
    np.save(text / "array.npy", np.array([Runs(mark)], object), allow_pickle=True)
    with (text / "data.jsonl").open("wb") as file:
        pickle.dump(Runs(mark), file, protocol=4)
    assert (
        main(["corpus", "gpt2", "--scale", "tiny", "--data", str(text / "data.jsonl"), "--output-dir", str(tmp_path)])
        == 2
    )
    assert (
        main(["corpus", "gpt2", "--scale", "tiny", "--data", str(text / "array.npy"), "--output-dir", str(tmp_path)])
        == 2
    )
    assert not mark.exists()


# Names that lead out of a directory


OUTSIDE = ("../outside", "/etc/passwd", "folder/file", "..")


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_corpus_manifest_may_name_only_files_in_its_directory(name: str, tmp_path: Path) -> None:
    corpus = mini_corpus(tmp_path / "corpus")
    file = corpus / FILE_NAME
    values = from_checked_json(file.read_bytes())
    values["shards"][0]["name"] = name
    file.write_bytes(to_checked_json(values))  # with the correct checksum
    with pytest.raises(BadInput, match="is damaged or not a manifest"):
        Manifest.load(corpus)


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_of_weights_may_name_only_files_in_its_directory(name: str, tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(BadInput, match="expected a file in the same directory"):
        sharded.weight_files(tmp_path, "model")


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_checkpoint_manifest_may_name_only_its_own_files(name: str, tmp_path: Path) -> None:
    folder = tmp_path / checkpoint.name(1)
    folder.mkdir()
    (folder / checkpoint.MANIFEST).write_text(json.dumps({"files": {name: {"bytes": 0, "sha256": ""}}}))
    assert "which is outside of this directory" in str(checkpoint.find_fault(folder))


def test_a_file_missing_from_the_checkpoint_manifest_is_not_read(tmp_path: Path) -> None:
    """Any file beside those of the workers used to be read without a check of its hash."""
    folder = tmp_path / checkpoint.name(1)
    folder.mkdir()
    files = {checkpoint.part_name(0): {"bytes": 0, "sha256": ""}}
    (folder / checkpoint.MANIFEST).write_text(json.dumps({"files": files}))
    (folder / checkpoint.part_name(1)).write_bytes(b"planted")
    assert checkpoint._parts(folder) == [folder / checkpoint.part_name(0)]


def test_members_of_an_archive_are_not_written_outside_of_the_directory(tmp_path: Path) -> None:
    """Archives are read in memory, so names of members are never used as paths."""
    inside = tmp_path / "inside"
    inside.mkdir()
    text = json.dumps({"text": "A sentence of some length that is kept, as it is long enough for that. " * 3}) + "\n"
    with zipfile.ZipFile(inside / "text.zip", "w") as archive:
        for name in ("../outside.jsonl", "/tmp/outside-of-sesame.jsonl", "a/../../outside.jsonl"):
            archive.writestr(name, text * 50)
    main(["corpus", "gpt2", "--scale", "tiny", "--data", str(inside), "--output-dir", str(inside / "out")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside"]
    assert not Path("/tmp/outside-of-sesame.jsonl").exists()


# Other users of this machine


def _meet(rank: int, port: int, heard: Any) -> None:
    """Join a group of two workers, and report the addresses at which this process listens."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    from datetime import timedelta

    from training.engines import loopback

    assert loopback.is_local_rendezvous()
    loopback.join("gloo", timedelta(seconds=60))
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
    mine = [one for one in psutil.Process().net_connections("inet") if one.status == psutil.CONN_LISTEN]
    heard.put((total.item(), [one.laddr.ip for one in mine]))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_workers_on_one_machine_listen_only_on_loopback() -> None:
    """The key-value store of torch used to listen on all interfaces."""
    from tests.orchestration.launch.test_local_cluster import free_port

    ways, port = multiprocessing.get_context("spawn"), free_port()
    heard: Any = ways.Queue()
    workers = [ways.Process(target=_meet, args=(rank, port, heard)) for rank in range(2)]
    for worker in workers:
        worker.start()
    found = [heard.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert {total for total, _ in found} == {2.0}
    addresses = [address for _, mine in found for address in mine]
    assert len(addresses) >= 3  # the store, and a socket of each worker
    assert {*addresses} <= LOOPBACK


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1", True),
        ("127.0.1.1", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("head", False),
    ],
)
def test_only_a_local_address_counts_as_a_local_rendezvous(
    address: str, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.engines import loopback

    monkeypatch.setenv("MASTER_ADDR", address)
    assert loopback.is_local_rendezvous() == here


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_local_ray_cluster_is_accessible_only_to_its_user(
    without_token: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its API requires the token, its dashboard is off by default and only on loopback, and its directory is private.

    Ray itself makes the directory accessible to everybody.
    """
    import ray

    from orchestration.launch import ray_session

    with ray_session(cpus=1):
        assert not ray._private.worker._global_node.webui_url
    assert "dashboard" not in capfd.readouterr().err
    with ray_session(cpus=1, dashboard=True):
        actual = capfd.readouterr().err
        url, _, file = actual.strip().splitlines()[-1].removeprefix("Ray dashboard: ").partition("; its token is in ")
        token = Path(file)
        folders = [token, token.parent]
        assert [stat.S_IMODE(path.stat().st_mode) for path in folders] == [0o600, 0o700]
        session = Path(ray._private.worker._global_node.get_session_dir_path())
        assert token.parent in session.parents
        assert [status(f"{url}/api/jobs/", given) for given in ("", "wrong", token.read_text(encoding="utf-8"))] == [
            401,
            403,
            200,
        ]
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        listening = [one for each in processes for one in each.net_connections("inet") if one.status == "LISTEN"]
        assert int(url.rpartition(":")[2]) in [one.laddr.port for one in listening]
        assert {one.laddr.ip for one in listening} <= LOOPBACK
    assert not token.parent.exists()


def status(url: str, token: str) -> int:
    """The status code of a server's response to a request with this token."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
