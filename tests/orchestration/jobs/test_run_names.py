"""A run is found by its directory, its name, its ID in MLflow or its recipe, and keeps the flags of its training."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from orchestration import tracking
from orchestration.cli import main
from orchestration.jobs import JobFlags, match_run, open_job, run_folder, run_names
from orchestration.jobs.job_flags import FLAGS, flags_of_run, save_flags
from preprocessing.errors import BadInput
from training.run import RUN

ID = "0123456789abcdef0123456789abcdef"


def write_run(out: Path, name: str, mlflow_id: str = "", age_s: int = 0) -> Path:
    """An empty run, which began `age_s` seconds before a fixed time."""
    folder = out / "runs" / name
    folder.mkdir(parents=True)
    (folder / RUN).write_text("{}")
    os.utime(folder / RUN, (1e9 - age_s, 1e9 - age_s))
    if mlflow_id:
        (folder / tracking.RUN_FILE).write_text(json.dumps({"run_id": mlflow_id, "uri": "sqlite:///x"}))
    return folder


def flags(name: str, out: Path, **more: object) -> JobFlags:
    return dataclasses.replace(JobFlags(recipe=name, output_dir=out), **more)


def test_a_run_is_found_by_directory_name_and_mlflow_id(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "bert_base_tiny-1a2b3c4d", ID)
    write_run(tmp_path, "bert_base_tiny-99999999", ID[::-1])
    for name in (str(folder), folder.name, "bert_base_tiny-1a2b", ID, ID[:8]):
        assert match_run(flags(name, tmp_path)) == folder
        assert run_folder(flags(name, tmp_path)) == folder
    assert match_run(flags("bert_base", tmp_path)) is None


def test_a_beginning_of_several_names_or_ids_is_refused(tmp_path: Path) -> None:
    first = write_run(tmp_path, "gpt2_tiny-1a2b0001", ID, age_s=1)
    second = write_run(tmp_path, "gpt2_tiny-1a2b0002", ID[:8] + "0" * 24)
    for name in ("gpt2_tiny-1a2b", ID[:8]):
        with pytest.raises(BadInput) as refusal:
            match_run(flags(name, tmp_path))
        assert str(refusal.value) == (
            f"invalid RUN: got {name}, the beginning of 2 runs in {tmp_path}/runs, expected one of them: "
            f"{second.name}, {first.name}; use a whole name or ID"
        )
    assert [match_run(flags(name, tmp_path)) for name in (first.name, ID)] == [first, first]


def test_the_id_of_an_evaluation_is_that_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path, "bert_base_tiny-1a2b3c4d", ID)
    other = "f" * 32
    found = [folder]
    monkeypatch.setattr(
        tracking, "find_run_directories", lambda place, run_id: found if other.startswith(run_id) else []
    )
    assert match_run(flags(other, tmp_path)) == folder
    assert match_run(flags(other[:8], tmp_path)) == folder
    found.append(write_run(tmp_path, "gpt2_tiny-1a2b3c4d"))
    with pytest.raises(BadInput, match=r"got f{8}, the beginning of 2 runs in .*use a whole name or ID"):
        match_run(flags(other[:8], tmp_path))
    assert match_run(flags(ID[::-1], tmp_path)) is None


def test_an_unknown_name_is_refused_with_the_runs_that_exist_the_newest_first(tmp_path: Path) -> None:
    for age in range(8):
        write_run(tmp_path, f"gpt2_tiny-0000000{age}", age_s=age)
    for name in ("gpt2_tiny-abcdabcd", "abcdabcd"):
        for find in (run_folder, open_job):
            with pytest.raises(BadInput) as refusal:
                find(flags(name, tmp_path))
            names = ", ".join(f"gpt2_tiny-0000000{age}" for age in range(6))
            assert str(refusal.value) == (
                f"invalid RUN: got {name}, expected the name or the MLflow ID of a run in {tmp_path}/runs: {names} "
                "and 2 more; name the directory of its results with --output-dir"
            )


def test_a_name_that_is_no_run_and_no_recipe_is_refused_with_the_runs_that_exist(tmp_path: Path) -> None:
    write_run(tmp_path, "gpt2_tiny-00000001")
    write_run(tmp_path, "mine-00000001")
    where = f"a run in {tmp_path}/runs: gpt2_tiny-00000001, mine-00000001"
    for name, find, message in (
        ("nosuch", run_folder, f"{where}, or a recipe; name the directory of its results with --output-dir"),
        ("gpt2_tiny-0000001", run_folder, f"{where}, or a recipe; did you mean gpt2_tiny-00000001?"),
        ("bert-base-uncased", run_folder, f"{where}, or a recipe; did you mean bert_base?"),
        ("gpt2_tiny-xxxx", open_job, f"{where}; name the directory"),
        ("mine-of_today", open_job, f"{where}; name the directory"),
    ):
        with pytest.raises(BadInput) as refusal:
            find(flags(name, tmp_path))
        assert str(refusal.value).startswith(
            f"invalid RUN: got {name}, expected the name or the MLflow ID of {message}"
        )
    write_run(tmp_path, "mine-of_today-00000001")
    for name in ("mine", "mine-of_today"):  # the only run of a recipe of the user
        assert run_folder(flags(name, tmp_path)).name == f"{name}-00000001"
    with pytest.raises(BadInput, match=r"invalid recipe: got gpt2-medium, .*did you mean gpt2_medium\?"):
        open_job(flags("gpt2-medium", tmp_path))


def test_a_recipe_alone_is_its_only_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = write_run(tmp_path, "gpt2_tiny-00000001", age_s=1)
    write_run(tmp_path, "gpt2_medium-00000001")
    assert run_folder(flags("gpt2", tmp_path)) == first
    assert caplog.messages == [f"gpt2: using its run {first}"]
    second = write_run(tmp_path, "gpt2-00000002")
    with pytest.raises(BadInput) as refusal:
        run_folder(flags("gpt2", tmp_path))
    assert str(refusal.value) == (
        f"invalid RUN: got gpt2, a recipe with 2 runs in {tmp_path}/runs, expected one of them: {second.name}, "
        f"{first.name}; use its name"
    )
    with pytest.raises(
        BadInput, match=r"gpt2: not trained with these flags .*train it with `sesame train gpt2 --scale"
    ):
        run_folder(flags("gpt2", tmp_path, scale="small"))


def test_flags_that_change_a_run_are_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "gpt2_tiny-00000001")
    for change, first, kind in (
        ({"seed": 3}, "--seed", "option"),
        ({"max_steps": 5}, "--max-steps", "option"),
        ({"data": ("x",)}, "--data", "option"),
        ({"overrides": ("optimizer.beta1=0.8",)}, "optimizer.beta1=0.8", "key"),
    ):
        with pytest.raises(BadInput) as refusal:
            open_job(flags(folder.name, tmp_path, **change))
        assert str(refusal.value) == (
            f"{first}: {folder} is already trained, and its recipe cannot change; leave this {kind} out"
        )


# The flags of a run


def test_a_run_keeps_its_flags_with_absolute_paths_and_without_those_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path, "mine-00000001")
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "text").mkdir()
    monkeypatch.chdir(tmp_path)
    given = JobFlags(
        recipe="mine.yaml",
        overrides=("optimizer.beta1=0.8", "init_checkpoint=start", "cluster.env.TOKEN=secret"),
        scale="tiny",
        cluster="one_gpu",
        data=("text", "demo", "line:text/*.txt", "books=text"),
        seed=3,
        holdout_ratio=0.2,
    )
    save_flags(folder, given)
    assert "secret" not in (folder / FLAGS).read_text()
    found = flags_of_run(folder, flags(folder.name, tmp_path))
    assert found == JobFlags(
        recipe=str(tmp_path / "mine.yaml"),
        overrides=("optimizer.beta1=0.8", f"init_checkpoint={tmp_path}/start"),
        scale="tiny",
        cluster="one_gpu",
        data=(f"{tmp_path}/text", "demo", f"line:{tmp_path}/text/*.txt", f"books={tmp_path}/text"),
        seed=3,
        holdout_ratio=0.2,
        output_dir=tmp_path,
    )
    moved = flags_of_run(folder, flags(folder.name, tmp_path, cluster="8xh100", overrides=("cluster.num_workers=4",)))
    home = flags_of_run(folder, flags(folder.name, tmp_path, cluster="local", is_cluster_given=True))
    assert home.cluster == "local"
    assert (moved.cluster, moved.overrides) == (
        "8xh100",
        ("optimizer.beta1=0.8", f"init_checkpoint={tmp_path}/start", "cluster.num_workers=4"),
    )


def test_a_run_without_its_flags_or_with_damaged_ones_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "mine-00000001")
    with pytest.raises(BadInput, match=r"has no flags\.json, so its command is not known; name its recipe"):
        open_job(flags(folder.name, tmp_path))
    for content in ("", "[]", '{"recipe": 3}', '{"recipe": "gpt2", "overrides": [], "scale": "", "cluster": "local"}'):
        (folder / FLAGS).write_text(content)
        with pytest.raises(BadInput) as refusal:
            open_job(flags(folder.name, tmp_path))
        assert str(folder / FLAGS) in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_a_run_opens_as_the_job_that_trained_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A document about nothing. It has two sentences.\n")
    trained = open_job(flags("bert_base", tmp_path / "out", scale="tiny", data=(str(tmp_path / "a.txt"),), seed=5))
    folder = write_run(tmp_path / "out", trained.plan.run.folder.name)
    save_flags(folder, trained.flags)
    opened = open_job(flags(folder.name, tmp_path / "out"))
    assert opened.recipe == trained.recipe
    assert opened.plan.run.folder == folder
    elsewhere = open_job(flags(str(folder), tmp_path / "another"))  # its results are beside it
    assert elsewhere.plan.run.folder == folder
    (tmp_path / "a.txt").write_text("Another text, so this would be another run.\n")
    with pytest.raises(BadInput, match="its recipe or its text has changed since this run began") as refusal:
        _ = open_job(flags(folder.name, tmp_path / "out")).plan
    assert str(refusal.value).startswith(f"{folder}: ")
    assert f"another run with `sesame train bert_base --scale tiny --data {tmp_path}/a.txt" in str(refusal.value)


def test_a_command_keeps_the_cluster_of_a_run_unless_one_is_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`local` is the default of --cluster, so the flag itself decides, not its value."""
    (tmp_path / "mine.yaml").write_text("name: mine\nnum_workers: 1\n")
    folder = write_run(tmp_path, "bert_base_tiny-00000001")
    save_flags(folder, JobFlags(recipe="bert_base", scale="tiny", cluster=str(tmp_path / "mine.yaml")))
    for more, cluster in (([], "mine"), (["--cluster", "local"], "local"), (["--cluster=local"], "local")):
        assert main(["check", str(folder), *more]) == 0
        assert f"of cluster {cluster} " in capsys.readouterr().out


def test_run_folders_are_listed_in_order(tmp_path: Path) -> None:
    (tmp_path / "runs" / "no_run").mkdir(parents=True)
    names = ["b-00000001", "a-00000001"]
    for name in names:
        write_run(tmp_path, name)
    assert [folder.name for folder in run_names.run_folders(tmp_path)] == sorted(names)
