"""Variables of a cluster file: credentials are referenced by name and never written; missing ones are reported at
once."""

import json
import os
import re
import stat
from pathlib import Path

import pytest

from orchestration import environment
from orchestration.cli import main
from orchestration.config import load_cluster, to_yaml
from orchestration.jobs import Job, JobFlags, corpus, open_job, submission
from orchestration.launch import SubmittedJob
from preprocessing.errors import BadInput, ResourceError

CANARY = "canary-5e8f1b"


def env_error(*overrides: str) -> str:
    with pytest.raises(BadInput) as error:
        load_cluster("local", [f"cluster.{one}" for one in overrides])
    return str(error.value)


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD", "PGPASSWORD", "github_token2",
     "BASIC_AUTH", "AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_CREDENTIALS", "SESSION_COOKIE", "SSH_PASSPHRASE",
     "MYSQL_PWD", "GITHUB_PAT"],
)  # fmt: skip
def test_plain_text_credential_is_refused_and_hidden(name: str) -> None:
    for value in (CANARY, f"${{A}}{CANARY}", f"'{CANARY} ${{A}}'"):
        message = env_error(f"env.{name}={value}")
        assert f"invalid cluster.env.{name}: got a credential in plain text, expected ${{NAME}}; export" in message
        assert CANARY not in message
    assert load_cluster("local", [f"cluster.env.{name}=${{MINE}}"]).env == {name: "${MINE}"}


@pytest.mark.parametrize(
    "value",
    [f"http://me:{CANARY}@proxy:3128", f"http://me:pa$word{CANARY}@proxy", f"https://{CANARY}@host/simple",
     f"http://${{ME}}:{CANARY}@host", f"-Dstore.password={CANARY}", f"https://host/?token={CANARY}"],
)  # fmt: skip
def test_credential_inside_a_value_is_refused_and_hidden(value: str) -> None:
    message = env_error(f"env.SOME={value}")
    assert "credential" in message
    assert CANARY not in message


def test_login_by_variable_name_is_accepted() -> None:
    for value in ("http://${LOGIN}@proxy:3128", "http://${ME}:${PASSWORD}@proxy", "https://host/a@b"):
        assert load_cluster("local", [f"cluster.env.HTTPS_PROXY={value}"]).env


@pytest.mark.parametrize(
    "given",
    [f"azure_connection_string=AccountKey={CANARY}", f"spark_master_url=spark://me:{CANARY}@host",
     f'environment_config={{"env":{{"AWS_SECRET_ACCESS_KEY":{CANARY}}}}}', f"files=[a, 'fs.s3a.secret.key={CANARY}']",
     f'environment_config=\'{{"env":{{"AWS_SECRET_ACCESS_KEY":"{CANARY}"}}}}\'', f"s3_session_token={CANARY}"],
)  # fmt: skip
def test_credential_in_beam_options_is_refused_and_hidden(given: str) -> None:
    message = env_error(f"beam.options.{given}")
    assert (
        f"invalid cluster.beam.options.{given.partition('=')[0]}: got a credential, expected none; write it" in message
    )
    assert CANARY not in message
    assert CANARY not in env_error(f"beam={{options: {{{given.replace('=', ': ', 1)}}}}}")


def test_beam_options_similar_to_credentials_are_accepted() -> None:
    for given in ("enable_hot_key_logging=true", "s3_access_key_id=AK", "spark_master_url=local[2]", "files=[a@b]"):
        assert load_cluster("local", [f"cluster.beam.options.{given}"]).beam.options


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "words",
    [["--s3_secret_access_key=" + CANARY], ["--s3_secret_access_key", CANARY], [f"--spark_master_url=s://me:{CANARY}@h"],
     [f'--environment_config={{"env": {{"AWS_SECRET_ACCESS_KEY": "{CANARY}"}}}}'],
     ["--environment_config", f'{{"env": {{"AWS_SECRET_ACCESS_KEY": "{CANARY}"}}}}']],
)  # fmt: skip
def test_recorded_command_line_has_no_beam_credentials(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line becomes the MLflow tag `command` of the corpus."""
    kept: list[str] = []

    def look(job: Job, *_: object) -> None:
        kept.append(job.command)
        raise BadInput("seen")

    monkeypatch.setattr(corpus, "corpus", look)
    micro = "cluster.engine.micro_batch_tokens=512"
    mine = ["corpus", "gpt2", micro, "--scale", "tiny", "--data", "demo", "--output-dir", str(tmp_path)]
    assert main([*mine, "--", *words, "--parallelism=2"]) == 2
    (line,) = kept
    assert CANARY not in line
    assert micro in line
    assert words[0].partition("=")[0] in line
    assert line.endswith("--parallelism=2")


@pytest.mark.parametrize("value", ["1", "true", "1.5", f"[{CANARY}]", f"{{a: {CANARY}}}"])
def test_value_that_is_not_a_string_is_refused_and_hidden(value: str) -> None:
    message = env_error(f"env.DB_PASSWORD={value}")
    assert "invalid cluster.env.DB_PASSWORD: got a value of type" in message
    assert CANARY not in message
    assert CANARY not in env_error(f"env={CANARY}")


def test_cluster_file_with_a_credential_is_refused_and_hidden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(f"name: mine\nenv:\n  NCCL_DEBUG: WARN\n  HF_TOKEN: {CANARY}\n")
    assert main(["check", "bert_base", "--cluster", str(tmp_path / "mine.yaml")]) == 2
    message = capsys.readouterr().err
    assert "mine.yaml: invalid env.HF_TOKEN: got a credential in plain text" in message
    assert CANARY not in message


@pytest.mark.parametrize(
    "name", [*sorted(environment.RESERVED), "LD_PRELOAD", "PYTHONPATH", "RAY_AUTH_TOKEN", "SESAME_X"]
)
def test_variables_set_by_sesame_and_ray_are_refused(name: str) -> None:
    assert re.search(rf"invalid cluster\.env\.{name}: got .*, expected another name; ", env_error(f"env.{name}=x"))


@pytest.mark.parametrize("value", ["${}", "${A B}", "${1A}", "${A", "${A:-x}"])
def test_malformed_reference_is_refused(value: str) -> None:
    assert "invalid cluster.env.A: got an invalid reference" in env_error(f"env.A='{value}'")


def test_missing_variable_gives_a_one_line_error_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    values = [
        "gpt2",
        "cluster.env.HF_TOKEN=${NOT_THERE}",
        "--scale",
        "tiny",
        "--data",
        "demo",
        "--output-dir",
        str(tmp_path),
    ]
    message = "cluster: env.HF_TOKEN needs $NOT_THERE, which is not in the environment"
    verbs = [
        ["run"],
        ["run", "--dry-run"],
        ["train", "--dry-run"],
        ["corpus"],
        ["submit", "--address", "http://127.0.0.1:1"],
    ]
    for verb, *more in verbs:
        assert main([verb, *values, *more]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sesame: ")]
        assert message in line
    assert not list(tmp_path.rglob("*.arrow"))
    assert main(["check", *values[:4]]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_values_are_not_in_the_cluster_file_or_the_job_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", CANARY)
    flags = JobFlags(recipe="gpt2", overrides=("cluster.env.HF_TOKEN=${MINE}",), scale="tiny", data=("demo",))
    job = open_job(flags)
    first = submission.identity(job, flags, "run")
    with environment.apply(job.cluster.env) as values:
        assert values == {"HF_TOKEN": CANARY}
        assert CANARY not in f"{job}{to_yaml(job.cluster)}{submission.command(flags, 'run')}"
    monkeypatch.setenv("MINE", "another")
    assert submission.identity(job, flags, "run") == first


def test_variables_are_set_only_inside_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", "/a")
    monkeypatch.setenv("KEPT", "before")
    monkeypatch.delenv("NEW", raising=False)
    env = {"NEW": "${FOLDER}", "KEPT": "now", "FOLDER": "${FOLDER}/b"}
    with environment.apply(env) as outer:
        assert [os.environ[name] for name in env] == ["/a", "now", "/a/b"]
        with environment.apply(env) as inner:  # ${FOLDER} is expanded only once: not /a/b/b
            assert inner == outer
        assert os.environ["KEPT"] == "now"
    assert (os.environ.get("NEW"), os.environ["KEPT"], os.environ["FOLDER"]) == (None, "before", "/a")


# Environment files of jobs


def test_values_for_a_job_are_in_a_private_file_until_it_loads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", CANARY)
    file = tmp_path / "left" / "job"
    old = os.umask(0)
    try:
        assert environment.save({"HF_TOKEN": "${MINE}"}, file)
    finally:
        os.umask(old)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    monkeypatch.delenv("MINE")
    monkeypatch.setenv(environment.FILE, str(file))
    environment.load_and_delete()
    assert os.environ["MINE"] == CANARY
    assert not file.exists()
    assert environment.FILE not in os.environ
    environment.load_and_delete()  # a second call does nothing
    assert not environment.save({"NCCL_DEBUG": "WARN"}, file)
    assert not file.exists()


def test_environment_file_that_is_readable_by_others_or_a_link_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", CANARY)
    file, link = tmp_path / "job", tmp_path / "link"
    environment.save({"HF_TOKEN": "${MINE}"}, file)
    file.chmod(0o644)
    link.symlink_to(file)
    for given, message in (
        (file, "other users have access"),
        (link, "cannot read"),
        (tmp_path / "none", "cannot read"),
    ):
        monkeypatch.setenv(environment.FILE, str(given))
        with pytest.raises(ResourceError, match=message):
            environment.load_and_delete()


@pytest.mark.parametrize("text", ["", '{"MINE": "canary', "\0\0", "[1]", '{"MINE": 1}'])
def test_damaged_environment_file_gives_a_one_line_error_and_is_deleted(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job"
    file.write_text(text)
    file.chmod(0o600)
    monkeypatch.setenv(environment.FILE, str(file))
    monkeypatch.delenv("MINE", raising=False)
    assert main(["recipes"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "is damaged; submit the job again" in line
    assert "canary" not in line
    assert not file.exists()


def test_failed_submission_deletes_its_environment_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", CANARY)
    values = ("cluster.env.HF_TOKEN=${MINE}",)
    job = open_job(JobFlags(recipe="gpt2", overrides=values, scale="tiny", data=("demo",), output_dir=tmp_path))
    with submission.send_environment(job, "gpt2-1") as variables:
        (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert variables == {environment.FILE: str(file)}
    assert file.exists()  # the job deletes the file
    with pytest.raises(ResourceError), submission.send_environment(job, "gpt2-1"):
        raise ResourceError("no dashboard")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


def test_refused_submission_deletes_only_its_own_environment_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused command once deleted the file of the other command, whose job then failed."""
    monkeypatch.setenv("MINE", CANARY)
    values = ("cluster.env.HF_TOKEN=${MINE}",)
    job = open_job(JobFlags(recipe="gpt2", overrides=values, scale="tiny", data=("demo",), output_dir=tmp_path))
    with submission.send_environment(job, "gpt2-1") as variables:
        with pytest.raises(ResourceError), submission.send_environment(job, "gpt2-1"):
            raise ResourceError("there is such a job")
        assert json.loads(Path(variables[environment.FILE]).read_text(encoding="utf-8")) == {"MINE": CANARY}


def test_environment_files_of_ended_jobs_are_deleted(tmp_path: Path) -> None:
    """Three attempts once left three files."""
    folder = tmp_path / submission.LEFT
    folder.mkdir()
    names = ("gpt2-1.0a", "gpt2-1-2.0b", "gpt2-1-3.0c", "gpt2-1-4.0d", "bert-1.0e")
    for name in names:
        (folder / name).write_text(CANARY)
    status = {"gpt2-1": "FAILED", "gpt2-1-2": "STOPPED", "gpt2-1-3": "PENDING", "bert-1": "SUCCEEDED"}
    submission.remove_leftover_environments(
        tmp_path, [SubmittedJob(id=name, status=message, command="") for name, message in status.items()]
    )
    assert sorted(file.name for file in folder.iterdir()) == ["gpt2-1-3.0c", "gpt2-1-4.0d"]
    submission.remove_leftover_environments(tmp_path / "none", [])


def test_only_a_valid_environment_file_of_the_job_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / submission.LEFT
    folder.mkdir()
    for path in (tmp_path / "gpt2-1.0a", folder / "gpt2-1-2.0a", folder / "gpt2-1.0a"):
        path.write_text("kept")
        submission.remove_leftover_environment("gpt2-1", str(path))
    submission.remove_leftover_environment("gpt2-1", "")
    assert sorted(path.name for path in tmp_path.rglob("gpt2*")) == ["gpt2-1-2.0a", "gpt2-1.0a"]
    assert [path.name for path in folder.iterdir()] == ["gpt2-1-2.0a"]


@pytest.mark.parametrize("has_home", [True, False])
def test_libraries_get_writable_cache_directories(
    has_home: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """matplotlib warns in each process if it cannot create its directory in the home directory."""
    monkeypatch.setattr(environment, "is_writable", lambda path: has_home)
    monkeypatch.setattr(environment, "user_cache", lambda: tmp_path)
    for name in environment.CACHES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    environment.use_own_caches()
    wanted = {} if has_home else {name: str(tmp_path / place) for name, (place, _) in environment.CACHES.items()}
    assert {name: os.environ[name] for name in environment.CACHES if name in os.environ} == wanted
