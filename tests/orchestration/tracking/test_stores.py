"""MLflow stores: supported kinds, their requirements, and the store of an output directory, which is complete or
absent."""

import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli import shared
from orchestration.tracking import examine_store, register, stores
from orchestration.tracking import runs as track
from orchestration.tracking.store_timeout import (
    database_file,
    database_uri,
    folder_of,
    suggest_package,
    summarize_error,
)
from preprocessing.errors import BadInput
from tests.orchestration.tracking.test_models import write_export

ROOT = Path(stores.__file__).parents[2]
METADATA = track.Metadata("mini", {"peak": 1e-3}, {}, "", {"recipe.yaml": "name: mini\n"})


class CreationStates:
    """Copy a store's file before each SQL statement of its creation, as a kill would leave it.

    `whole` records whether each copy counts as complete; `kept` has some of the copies.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.statements = folder, 0
        self.whole = list[bool]()
        self.kept = list[Path]()

    def look(self, *args: Any) -> None:
        self.statements += 1
        made_store = next(self.folder.glob(".tmp-mlflow.db-*[0-9a-f]"), None)
        if made_store is None:
            return
        copy = self.folder / "copies" / f"{self.statements}" / "mlflow.db"
        copy.parent.mkdir(parents=True)
        for suffix in ("", "-journal"):
            if (source := Path(f"{made_store}{suffix}")).exists():
                shutil.copy(source, f"{copy}{suffix}")
        self.whole.append(stores.is_whole(copy))
        if self.statements in (3, 40) or self.statements % 200 == 0:
            self.kept.append(copy)
        else:
            shutil.rmtree(copy.parent)


@pytest.fixture(scope="module")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CreationStates]:
    """A complete store, and the states of its file during creation."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    folder = tmp_path_factory.mktemp("made")
    states = CreationStates(folder)
    track.load_mlflow(database_uri(folder / "mlflow.db"))
    event.listen(Engine, "before_cursor_execute", states.look)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stores, "_fill", stores._create_tables)
            stores.make(folder / "mlflow.db")
    finally:
        event.remove(Engine, "before_cursor_execute", states.look)
    return folder / "mlflow.db", states


@pytest.fixture
def filled_names(made_store: tuple[Path, CreationStates], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Create stores by copying one; return the names of the created files."""
    names = list[str]()

    def copy(file: Path, artifacts: str) -> None:
        names.append(file.name)
        shutil.copy(made_store[0], file)

    monkeypatch.setattr(stores, "_fill", copy)
    return names


def tables(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as opened:
        return {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def sibling_names(file: Path) -> list[str]:
    return sorted(path.name for path in file.parent.iterdir())


# The template


def contents(file: Path) -> dict[str, object]:
    """Schema and rows of a store, without the times of its creation."""
    with closing(sqlite3.connect(file)) as opened:
        dump = [line for line in opened.iterdump() if not line.startswith('INSERT INTO "experiments"')]
        experiments = opened.execute("SELECT experiment_id, name, artifact_location, lifecycle_stage FROM experiments")
        return {"dump": dump, "experiments": experiments.fetchall()}


def test_a_copied_store_equals_one_that_mlflow_creates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_template", lambda: tmp_path / "cache" / "template.db")
    for name in ("first", "second", "third"):
        stores.make(tmp_path / name / "mlflow.db", f"file:///artifacts-of-{name}")
        if name == "first":  # the others need no MLflow
            monkeypatch.setattr(stores, "_create_tables", lambda *_: pytest.fail("the template was not used"))
    first, second = contents(tmp_path / "first" / "mlflow.db"), contents(tmp_path / "second" / "mlflow.db")
    assert second["dump"] == first["dump"]
    assert second["experiments"] == [(0, "Default", "file:///artifacts-of-second/0", "active")]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("damage", [b"", b"no database", "cut"])
def test_a_damaged_template_is_replaced(damage: bytes | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = tmp_path / "cache" / "template.db"
    monkeypatch.setattr(stores, "_template", lambda: template)
    stores.make(tmp_path / "first" / "mlflow.db")
    whole = template.read_bytes()
    template.write_bytes(damage if isinstance(damage, bytes) else whole[: len(whole) // 2])
    stores.make(tmp_path / "second" / "mlflow.db")
    assert stores.is_whole(tmp_path / "second" / "mlflow.db")
    assert tables(template) == tables(tmp_path / "first" / "mlflow.db")


def test_a_store_is_created_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(stores, "_template", lambda: tmp_path / "file" / "template.db")
    stores.make(tmp_path / "out" / "mlflow.db")
    assert stores.is_whole(tmp_path / "out" / "mlflow.db")


# The file of a directory


def test_store_is_complete_only_after_its_last_statement(made_store: tuple[Path, CreationStates]) -> None:
    file, states = made_store
    assert states.statements > 200
    assert len(states.whole) > 200
    assert not any(states.whole)
    assert stores.is_whole(file)
    assert sibling_names(file) == ["copies", "mlflow.db"]


def test_incomplete_store_is_set_aside_and_created_again(
    made_store: tuple[Path, CreationStates], filled_names: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every later command once failed: "table trace_info already exists"."""
    half_made = [*made_store[1].kept, tmp_path / "empty.db"]
    (tmp_path / "empty.db").touch()
    for number, left in enumerate(half_made):
        folder = tmp_path / str(number)
        folder.mkdir()
        for suffix in ("", "-journal"):
            if Path(f"{left}{suffix}").exists():
                shutil.copy(f"{left}{suffix}", folder / f"mlflow.db{suffix}")
        stores.make(folder / "mlflow.db")
        assert stores.is_whole(folder / "mlflow.db")
        aside = [name for name in sibling_names(folder / "mlflow.db") if name != "mlflow.db"]
        assert all(name.startswith("half-made-") for name in aside)
        assert f"the old file is {folder / aside[0]}" in caplog.text
    assert len(filled_names) == len(half_made)


def test_damaged_complete_or_locked_store_is_left_unchanged(
    filled_names: list[str], made_store: tuple[Path, CreationStates], tmp_path: Path
) -> None:
    for name, content in {"damaged.db": b"this is no store\n" * 100, "whole.db": made_store[0].read_bytes()}.items():
        (tmp_path / name).write_bytes(content)
        stores.make(tmp_path / name)
        assert (tmp_path / name).read_bytes() == content
    locked = tmp_path / "locked.db"
    with closing(sqlite3.connect(locked, isolation_level=None)) as other:
        other.execute("CREATE TABLE experiments (name)")
        other.execute("BEGIN EXCLUSIVE")
        stores.make(locked)
    assert filled_names == []
    assert tables(locked) == {"experiments"}


def test_other_database_is_kept_under_another_name(filled_names: list[str], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as other:
        other.execute("CREATE TABLE recipes (name)")
    stores.make(tmp_path / "mlflow.db")
    (aside,) = tmp_path.glob("half-made-*")
    assert tables(aside) == {"recipes"}
    assert stores.is_whole(tmp_path / "mlflow.db")


STAGES = {
    "as it is made": ("_fill", 1),
    "when it is made": ("_rename", 0),
    "when it has its name": ("_rename", 1),
}


@pytest.mark.parametrize("stage", STAGES)
def test_directory_works_after_a_kill_at_any_stage(
    stage: str, filled_names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, is_after = STAGES[stage]
    real: Callable[..., None] = getattr(stores, name)

    def killed(*args: Any) -> None:
        if is_after:
            real(*args)
        os._exit(9)

    if (child := os.fork()) == 0:
        setattr(stores, name, killed)
        stores.make(tmp_path / "mlflow.db")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    stores.make(tmp_path / "mlflow.db")
    assert stores.is_whole(tmp_path / "mlflow.db")
    left = {path for path in sibling_names(tmp_path / "mlflow.db") if not path.startswith(".tmp-")}
    assert left == {"mlflow.db"}


def test_error_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(file: Path, artifacts: str) -> None:
        file.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(stores, "_fill", stopped)
    with pytest.raises(KeyboardInterrupt):
        stores.make(tmp_path / "new" / "mlflow.db")
    assert sibling_names(tmp_path / "new" / "mlflow.db") == []


def test_simultaneous_first_commands_create_one_store(
    made_store: tuple[Path, CreationStates], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, names = threading.Barrier(3), list[str]()

    def copy_store(file: Path, artifacts: str) -> None:
        names.append(file.name)
        shutil.copy(made_store[0], file)

    def run_command() -> None:
        begun.wait(60)
        stores.make(tmp_path / "mlflow.db")

    monkeypatch.setattr(stores, "_fill", copy_store)
    commands = [threading.Thread(target=run_command) for _ in range(3)]
    for each in commands:
        each.start()
    for each in commands:
        each.join(60)
    assert len(names) == 1
    assert sibling_names(tmp_path / "mlflow.db") == ["mlflow.db"]


def test_first_store_stays_on_a_disk_without_locks(
    filled_names: list[str], made_store: tuple[Path, CreationStates], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later store must not replace the first one, which has runs."""
    file, other = tmp_path / "mlflow.db", made_store[0].read_bytes() + bytes(4096)
    real = stores._rename

    def late(temporary: Path, file: Path) -> None:
        file.write_bytes(other)
        real(temporary, file)

    monkeypatch.setattr(stores, "_rename", late)
    stores.make(file)
    assert file.read_bytes() == other
    assert sibling_names(file) == ["mlflow.db"]


def test_store_is_created_on_a_disk_without_hard_links(
    filled_names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    stores.make(tmp_path / "mlflow.db")
    assert stores.is_whole(tmp_path / "mlflow.db")


PROGRAM = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from orchestration.tracking import runs as track
left = [int(sys.argv[2])]
def count(*args):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
track.load_mlflow("sqlite:///")
event.listen(Engine, "before_cursor_execute", count)
with track.run(track.tracking_store(Path(sys.argv[1])), Path(sys.argv[1]) / "run", None, track.Metadata("mini")) as run:
    print(run.run_id)
"""


def start_command(out: Path, kill_at: int = 0) -> "subprocess.Popen[str]":
    """Start a first command in a directory; it is killed at the given SQL statement (0: never).

    The cache of its user has no template of a store.
    """
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(out), str(kill_at)],
        cwd=ROOT, env=os.environ | {"XDG_CACHE_HOME": str(out / "cache")}, text=True, stdout=-1, stderr=-1,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("statement", [1, 30, 300, 600])
def test_killed_first_command_can_be_repeated(statement: int, tmp_path: Path) -> None:
    killed = start_command(tmp_path, statement)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "mlflow.db").exists()
    again = start_command(tmp_path)
    found, error = again.communicate()
    assert again.returncode == 0, error
    assert track.client_of(track.tracking_store(tmp_path).uri).get_run(found.strip()).info.status == "FINISHED"
    assert not list(tmp_path.glob(".tmp-*"))


@pytest.mark.slow
def test_two_simultaneous_first_commands_both_work(tmp_path: Path) -> None:
    both = [start_command(tmp_path), subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace('"run", None', '"other", None'), str(tmp_path), "0"],
        cwd=ROOT, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}, text=True, stdout=-1, stderr=-1,
    )]  # fmt: skip
    message = [each.communicate() for each in both]
    assert [each.returncode for each in both] == [0, 0], message


# Addresses made of a path

UNUSUAL_NAMES = (
    "what?", "a?mode=ro", "50%", "%41%2f", "#1", "a&b=c", "it's", 'a"b', "two words", "a+b", "a:b", "s3:", "x@y",
    "é ü 中文", "a;b", "[x]", "{x}", "~", "a\\b", "$HOME",
)  # fmt: skip


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", UNUSUAL_NAMES)
def test_unusual_directory_contains_its_store_and_artifacts(
    name: str, filled_names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a question mark, the store was once created elsewhere, and the next command found it empty."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    out = tmp_path / name
    place = track.tracking_store(out)
    assert (database_file(place.uri), folder_of(place.artifacts)) == (out / "mlflow.db", out / "artifacts")
    with track.run(place, out / "runs" / "mini", None, METADATA) as tracked:
        pass
    client = track.client_of(place.uri)
    assert client.get_run(tracked.run_id).info.status == "FINISHED"
    assert Path(client.download_artifacts(tracked.run_id, "recipe.yaml")).read_text(encoding="utf-8") == "name: mini\n"
    assert list(out.glob("artifacts/**/recipe.yaml"))
    assert {path.name for path in tmp_path.iterdir()} == {"here", name}
    assert list((tmp_path / "here").iterdir()) == []
    assert track.existing_run(out / "runs" / "mini") == tracked
    assert folder_of(client.get_run(tracked.run_id).data.tags["sesame.run_dir"]) == out / "runs" / "mini"


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", UNUSUAL_NAMES)
def test_run_in_an_unusual_directory_keeps_its_final_status(name: str, filled_names: list[str], tmp_path: Path) -> None:
    """The directory in the run's tag was once not found, so the run was set to FAILED."""
    place, folder = track.tracking_store(tmp_path / name), tmp_path / name / "run"
    with track.run(place, folder, None, METADATA) as tracked:
        pass
    client = track.client_of(place.uri)
    gone = track.Owner(os.uname().nodename, 2**22 + 1, 1.0, 1.0)
    client.update_run(tracked.run_id, status="RUNNING")
    client.set_tag(tracked.run_id, track.OWNER, track.json.dumps(track.asdict(gone)))
    track.add_pending(folder, status="FINISHED", detail="")
    assert track.reap(place) == [tracked.run_id]
    assert client.get_run(tracked.run_id).info.status == "FINISHED"


# Kinds of stores


@pytest.mark.parametrize(
    ("uri", "package"),
    [
        ("postgresql+psycopg2://ann:secret@host/db", "psycopg2-binary"),
        ("postgresql+psycopg://ann:secret@host/db", "psycopg[binary]"),
        ("postgresql+pg8000://ann:secret@host/db", "pg8000"),
        ("mysql://ann:secret@host/db", "mysqlclient"),
        ("mysql+pymysql://ann:secret@host/db", "PyMySQL"),
        ("mysql+mysqlconnector://ann:secret@host/db", "mysql-connector-python"),
        ("mssql+pyodbc://ann:secret@host/db", "pyodbc"),
        ("mssql+pymssql://ann:secret@host/db", "pymssql"),
    ],
)
def test_missing_database_driver_names_its_package(
    uri: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(BadInput) as refused:
        track.tracking_store(tmp_path)
    message = str(refused.value)
    assert message.startswith(f"MLFLOW_TRACKING_URI is {uri.replace('ann:secret', '***')}, which needs the module ")
    assert package in message.partition("install it: pip install ")[2]
    assert examine_store(uri)[1].startswith("install it: pip install ")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://bucket/x", "MLflow has no store s3:, expected one of http, https, postgresql"),
        ("oracle://host/db", "MLflow has no store oracle:"),
        ("foo://x", "check the address, or install the MLflow plugin"),
        ("redis+x://h", "MLflow has no store redis:"),
        ("http:/host", r"expected an address with a host; set it to http://HOST:PORT"),
        ("https://", r"set it to https://HOST:PORT"),
        ("sqlite:/tmp/x.db", "invalid address of a database"),
        ("sqlite://", "a store in memory loses its runs when the command ends; set it to sqlite:"),
        ("sqlite:///:memory:", "a store in memory"),
        ("sqlite+pysqlite:///:memory:?cache=shared", "a store in memory"),
        ("postgresql+nothing://host/db", "SQLAlchemy has no such driver"),
        ("file:///tmp/runs", r"a directory, where MLflow no longer stores new runs; set it to sqlite:"),
        ("/tmp/runs", "a directory"),
        ("127.0.0.1:5000", "set it to http://127.0.0.1:5000"),
    ],
)
def test_invalid_store_address_gives_a_one_line_error(
    uri: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(BadInput, match=message) as refused:
        track.tracking_store(tmp_path)
    assert "\n" not in str(refused.value)


def test_missing_store_file_is_reported_as_missing(tmp_path: Path) -> None:
    """`doctor` once reported that such a store answers, even if no store can be created there."""
    assert examine_store(f"sqlite:///{tmp_path}/x.db") == (
        f"sqlite:///{tmp_path}/x.db does not exist: the first run creates it",
        "",
    )
    (tmp_path / "file").touch()
    assert examine_store(f"sqlite:///{tmp_path}/file/x.db")[1] == "use a writable directory"


@pytest.mark.parametrize("uri", ["http://host", "https://host/path", "databricks", "databricks://profile"])
def test_addresses_that_mlflow_supports_are_accepted(uri: str) -> None:
    assert stores.check_store_address(uri) == uri


@pytest.mark.parametrize(
    ("location", "package"),
    [
        ("s3://bucket/x", "boto3"),
        ("r2://bucket/x", "boto3"),
        ("gs://bucket/x", "google-cloud-storage"),
        ("wasbs://c@a.blob.core.windows.net/x", "azure-storage-blob"),
        ("abfss://c@a.dfs.core.windows.net/x", "azure-storage-file-datalake"),
        ("sftp://host/x", "pysftp"),
    ],
)
def test_unreachable_artifacts_name_the_missing_package(location: str, package: str) -> None:
    with pytest.raises(BadInput, match=rf"^MLflow stores artifacts in .*, which needs .* install .*{package}"):
        stores.check_artifacts(location)


def test_unknown_artifact_location_is_refused() -> None:
    for location in ("file:///tmp/x", "/tmp/x", "mlflow-artifacts:/", "https://host/x"):
        stores.check_artifacts(location)
    with pytest.raises(BadInput, match="has no client for foo:, expected one of s3"):
        stores.check_artifacts("foo://x")


def test_new_run_is_refused_if_artifacts_cannot_be_stored(filled_names: list[str], tmp_path: Path) -> None:
    place = track.TrackingStore(track.tracking_store(tmp_path).uri, "s3://bucket/x")
    with (
        pytest.raises(BadInput, match="needs the module boto3, which is not installed; install it: pip install boto3"),
        track.run(place, tmp_path / "run", None, METADATA),
    ):
        pass
    assert track.client_of(place.uri).search_runs(["0", "1"]) == []


def test_missing_module_names_its_package() -> None:
    error = ModuleNotFoundError("No module named 'boto3'", name="boto3")
    assert summarize_error(error) == suggest_package("boto3")


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", UNUSUAL_NAMES)
def test_model_of_a_run_in_an_unusual_directory_is_registered(
    name: str, filled_names: list[str], tmp_path: Path
) -> None:
    place, folder = track.tracking_store(tmp_path / name), write_export("bert", tmp_path / name / "run")
    with track.run(place, folder, None, METADATA):
        pass
    version = register(folder, folder / "export", "mine")
    assert (version.uri, version.is_new) == ("models:/mine/1", True)
    found = track.client_of(place.uri).get_model_version("mine", "1")
    assert folder_of(found.source).is_relative_to(tmp_path / name / "artifacts")
    assert (folder_of(found.source) / "MLmodel").is_file()


@pytest.mark.parametrize("name", UNUSUAL_NAMES)
def test_printed_loading_command_works_in_a_shell(name: str) -> None:
    (python, option, code) = shlex.split(shared.python_command(f"folder = {shared.python_literal(name)}"))
    exec(code, found := dict[str, Any]())
    assert (python, option, found["folder"]) == ("python", "-c", name)
