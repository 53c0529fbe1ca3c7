"""A slow tracking server counts as available: every call is waited for, and all data is logged.

A proxy in front of MLflow's own server delays every answer. The delays, and the time until a store is probed, are
scaled down from those that users have reported. No test depends on how long anything takes.
"""

import json
import logging
import re
import ssl
import urllib.error
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestration import figures
from orchestration.jobs import catch_up
from orchestration.launch import group
from orchestration.progress import ignore_progress
from orchestration.terminal import doctor
from orchestration.tracking import (
    MetricLog,
    TaskRecord,
    TrialRecord,
    corpus_progress,
    corpus_run,
    examine_store,
    log_card,
    log_scores,
    log_table,
    log_task,
    mirror,
    read_unlogged_metrics,
    register,
    store_timeout,
)
from orchestration.tracking import runs as track
from orchestration.tracking.store_timeout import (
    CallTimeout,
    MonitoredClient,
    pending_updates,
    summarize_error,
    wait_while_available,
)
from preprocessing.errors import BadInput, ResourceError
from tests.orchestration.tracking.servers import Proxy, mlflow_server, proxy
from tests.orchestration.tracking.test_models import write_export
from tests.training.corpora import mini_corpus

SCALE = 0.2  # factor for the delays
METADATA = track.Metadata("mini", {"peak": 1e-3}, {"recipe_hash": "abc"}, "* a net", {"recipe.yaml": "name: mini\n"})
KEYS = [f"train/metric_{number}" for number in range(19)]
CREDENTIAL_ADVICE = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with mlflow_server(tmp_path_factory.mktemp("server")) as uri:
        yield uri


@pytest.fixture
def fast(server: str) -> Iterator[Proxy]:
    """A proxy without a delay."""
    with proxy(server) as asked:
        yield asked


@pytest.fixture(params=[0.1, *(pytest.param(delay_s, marks=pytest.mark.slow) for delay_s in (0.5, 2.0))])
def slow(request: pytest.FixtureRequest, server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy that delays every answer."""
    monkeypatch.setattr(store_timeout, "PROBE_S", SCALE * store_timeout.PROBE_S)
    with proxy(server, SCALE * request.param) as asked:
        yield asked


@pytest.fixture(autouse=True)
def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USERNAME", "PASSWORD", "TOKEN"):
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)


def read_directly(server: Proxy, tracked: track.TrackedRun) -> tuple[Any, Any]:
    """Return a client without the proxy, and the run."""
    client = track.client_of(f"http://127.0.0.1:{server.target.port}")
    return client, client.get_run(tracked.run_id)


def record_steps(log: MetricLog, steps: int) -> None:
    for step in range(1, steps + 1):
        log(step, {key: float(step) for key in KEYS})


def is_complete(server: Proxy, tracked: track.TrackedRun, steps: int) -> bool:
    client, _ = read_directly(server, tracked)
    histories = (client.get_metric_history(tracked.run_id, key) for key in KEYS)
    return all([point.step for point in points] == list(range(1, steps + 1)) for points in histories)


# Commands


def test_short_run_is_complete_when_it_ends(slow: Proxy, tmp_path: Path) -> None:
    """Runs of 30 steps once ended as FINISHED without any points."""
    mini_corpus(tmp_path / "corpus", num_train=3, num_validation=1)
    folder = write_export("bert", tmp_path / "run")
    with track.run(track.TrackingStore(slow.uri), folder, tmp_path / "corpus", METADATA) as tracked:
        begun = slow.requests
        log = MetricLog(folder, tracked, system=False, tags={"hardware.gpus": "8 x H100"})
        (folder / "sample.txt").write_text("a sample")
        log.mirror(folder / "sample.txt", "samples")
        record_steps(log, 30)
        seen = list[Mapping[str, Any]]()
        log.close(seen.append)
        mirrored = slow.requests
        group.log_results(folder, tracked, True)
    client, run = read_directly(slow, tracked)
    assert is_complete(slow, tracked, 30)
    assert [(event["done"], event["total"]) for event in seen] == [(0, 570), (570, 570)]
    assert (run.info.status, run.data.tags.get("sesame.exit_reason")) == ("FINISHED", None)
    assert (run.data.tags["recipe_hash"], run.data.tags["hardware.gpus"]) == ("abc", "8 x H100")
    assert {file.path for file in client.list_artifacts(tracked.run_id)} >= {"recipe.yaml", "samples"}
    assert run.outputs.model_outputs
    assert pending_updates(folder) == {}
    assert begun <= 14, slow.asked
    assert mirrored - begun <= 6, "the state of a run must be queried once, not once per key"
    assert slow.requests - mirrored <= 55, slow.asked


def test_corpus_run_is_complete_when_it_ends(slow: Proxy, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    with corpus_run(track.TrackingStore(slow.uri), folder, METADATA) as run:
        report = corpus_progress(run)
        for done in range(1, 5):
            report({"stage": "text", "done": done, "total": 4, "documents": done, "bytes": done, "tokens": done})
        mini_corpus(folder, num_train=3, num_validation=1)
        page = tmp_path / "data_card.md"
        page.write_text("a card")
        log_card(run, [page], {"zipf": figures.plot_zipf([(1, 10), (2, 5)])})
    client, found = read_directly(slow, run.tracked)
    assert found.info.status == "FINISHED"
    assert client.get_metric_history(run.tracked.run_id, "text/documents")[-1].value == 4
    assert {"card", "figures"} <= {file.path for file in client.list_artifacts(run.tracked.run_id)}
    assert found.data.tags["sesame.corpus_digest"]
    assert slow.requests <= 34, slow.asked


def test_scores_and_tables_are_logged_immediately(
    slow: Proxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with track.run(track.TrackingStore(slow.uri), tmp_path, None, METADATA):
        pass
    begun = slow.requests
    cells = tuple(TrialRecord(f"cell {number}", {"rate": 1e-4}, {"accuracy": 0.5}, (1.0, 0.5)) for number in range(3))
    record = TaskRecord("mine", {"grid": "bert"}, {"accuracy": (0.5, 0.6)}, {"accuracy": 0.55}, cells=cells)
    page = tmp_path / "table.md"
    page.write_text("a table")
    mirror(tmp_path, "mine", "the scores of mine", lambda run: log_task(run, record))
    by_task = slow.requests - begun
    picture = figures.plot_zipf([(1, 10), (2, 5)])
    mirror(tmp_path, "page", "the table", lambda run: log_table(run, {"MLM": 0.5}, page, picture))
    mirror(tmp_path, "more", "more scores", lambda run: log_scores(run, {"average": 0.5}))
    tracked = track.existing_run(tmp_path)
    assert tracked
    client, run = read_directly(slow, tracked)
    assert {"eval/mine/accuracy", "MLM", "average"} <= set(run.data.metrics)
    found = client.search_runs([run.info.experiment_id], f"tags.mlflow.parentRunId = '{tracked.run_id}'")
    assert [child.info.status for child in found] == ["FINISHED"]
    assert not read_unlogged_metrics(tmp_path)
    assert "does not accept" not in caplog.text
    assert by_task <= 7 + 5 * len(cells), slow.asked


@pytest.mark.filterwarnings("ignore")
def test_model_is_registered_on_a_slow_server(slow: Proxy, tmp_path: Path) -> None:
    folder = write_export("bert", tmp_path / "run")
    with track.run(track.TrackingStore(slow.uri), folder, None, METADATA):
        pass
    version = register(folder, folder / "export", f"mine-{slow.delay_s}")
    assert version.is_new
    assert not register(folder, folder / "export", f"mine-{slow.delay_s}").is_new


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, b"no", "answers 500 (Internal Server Error): the server, or a proxy before it, fails"),
        (503, b"no", "answers 503 (Service Unavailable): the server, or a proxy before it, fails"),
        (429, b"no", "answers 429 (Too Many Requests): the server, or a proxy before it, fails"),
        (404, b"<html>", "answers 404 (Not Found): it is not MLflow"),
        (200, b"<html>", "answers with a web page, unlike MLflow: check the address, and whether it requires a login"),
        (200, b"{}", "answers, but not like MLflow: check the address"),
    ],
)
def test_unexpected_response_is_described(
    fast: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, message: str
) -> None:
    """Such a server was once reported as unresponsive, in the words of four libraries; `{}` was taken for a run without
    an ID."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    fast.status, fast.body = status, body
    with (
        pytest.raises(ResourceError, match=f"^MLflow at {fast.uri} {re.escape(message)}; check MLFLOW_TRACKING_URI$"),
        track.run(track.TrackingStore(fast.uri), tmp_path / "run", None, METADATA),
    ):
        pass
    if body != b"{}":
        assert examine_store(fast.uri) == (f"{fast.uri} {message}", "check MLFLOW_TRACKING_URI")
    assert not (tmp_path / "run" / track.RUN_FILE).exists()


def test_doctor_accepts_a_slow_server(slow: Proxy, tmp_path: Path) -> None:
    finding = doctor.tracking(slow.uri, tmp_path, examine_store)
    assert finding.found.startswith(f"{slow.uri} answers")
    assert not finding.remedy


# Missing data: reported, and logged by the repeated command


def test_missing_points_are_reported_until_they_are_logged(
    fast: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise OSError("too many points")

    with track.run(track.TrackingStore(fast.uri), tmp_path, None, METADATA) as tracked:
        log = MetricLog(tmp_path, tracked, system=False)
        record_steps(log, 4)
        with monkeypatch.context() as patch:
            patch.setattr(MetricLog, "_mirror_pending", refuse)
            log.close()
            group.log_results(tmp_path, tracked, True)
    _, run = read_directly(fast, tracked)
    assert run.info.status == "FINISHED"
    assert run.data.tags["sesame.exit_reason"] == f"MLflow lacks 76 points of it, which are stored in {tmp_path}"
    assert "it lacks 76 points" in caplog.text
    catch_up(tmp_path, track.TrackingStore(fast.uri), ignore_progress)
    _, run = read_directly(fast, tracked)
    assert is_complete(fast, tracked, 4)
    assert "sesame.exit_reason" not in run.data.tags
    assert pending_updates(tmp_path) == {}


def test_unsent_points_of_the_first_worker_are_sent_at_the_end(fast: Proxy, tmp_path: Path) -> None:
    """The worker was killed just after its last step, so nothing had recorded the missing points."""
    with track.run(track.TrackingStore(fast.uri), tmp_path, None, METADATA) as tracked:
        record_steps(MetricLog(tmp_path, None), 4)
        group.log_results(tmp_path, tracked, True)
    assert is_complete(fast, tracked, 4)


def test_repeated_command_logs_pending_data_to_a_slow_server(slow: Proxy, tmp_path: Path) -> None:
    """Each command once reported again that the server does not answer."""
    tracked = track.create_run(track.client_of(slow.uri), track.TrackingStore(slow.uri), "mini")
    (tmp_path / track.RUN_FILE).write_text(json.dumps({"uri": tracked.uri, "run_id": tracked.run_id}))
    record_steps(MetricLog(tmp_path, None), 30)
    store_timeout.add_pending(tmp_path, points=570, status="FINISHED", detail="")
    catch_up(tmp_path, track.TrackingStore(slow.uri), ignore_progress)
    _, run = read_directly(slow, tracked)
    assert is_complete(slow, tracked, 30)
    assert run.info.status == "FINISHED"
    assert pending_updates(tmp_path) == {}


# Credentials


def test_new_run_without_credentials_names_the_variables(fast: Proxy, tmp_path: Path) -> None:
    fast.status = 401
    with (
        pytest.raises(
            BadInput, match=rf"^MLflow at {fast.uri}: requires a user and a password \(401\); {CREDENTIAL_ADVICE}$"
        ),
        track.run(track.TrackingStore(fast.uri), tmp_path / "run", None, METADATA),
    ):
        pass
    assert not (tmp_path / "run").exists()
    finding = doctor.tracking(fast.uri, tmp_path, examine_store)
    assert finding == doctor.HealthCheck(
        "mlflow", f"{fast.uri}: requires a user and a password (401)", CREDENTIAL_ADVICE, fatal=True
    )


@pytest.mark.parametrize(
    ("status", "given", "message"),
    [
        (401, {"USERNAME": "ann", "PASSWORD": "secret"}, "user ann or the password is not accepted (401)"),
        (401, {"TOKEN": "secret"}, "the token is not accepted (401)"),
        (403, {}, "permission denied to users without a password (403)"),
        (403, {"USERNAME": "ann", "PASSWORD": "secret"}, "permission denied to user ann (403)"),
    ],
)
def test_refused_credentials_are_reported_without_the_secret(
    status: int, given: Mapping[str, str], message: str, fast: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)
    fast.status = status
    with pytest.raises(BadInput) as refused, track.run(track.TrackingStore(fast.uri), tmp_path, None, METADATA):
        pass
    assert message in str(refused.value)
    assert "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_known_run_continues_with_expired_credentials(
    fast: Proxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with track.run(track.TrackingStore(fast.uri), tmp_path, None, METADATA) as first:
        pass
    fast.status = 401
    with track.run(track.TrackingStore(fast.uri), tmp_path, None, METADATA) as tracked:
        record_steps(log := MetricLog(tmp_path, tracked, system=False), 1)
        log.close()
        mirror(tmp_path, "mine", "the scores of mine", lambda run: log_scores(run, {"average": 0.5}))
    assert tracked == first
    assert f"{CREDENTIAL_ADVICE}: training continues; metrics will be synced later" in caplog.text
    for what in (
        "metrics",
        "the scores of mine (repeat the command to log them)",
        "the final status FINISHED of the run",
    ):
        assert any(f"MLflow does not accept {what}" in one and CREDENTIAL_ADVICE in one for one in caplog.messages)
    catch_up(tmp_path, track.TrackingStore(fast.uri), ignore_progress)
    assert f"does not answer (requires a user and a password (401); {CREDENTIAL_ADVICE})" in caplog.text
    fast.status = 0
    catch_up(tmp_path, track.TrackingStore(fast.uri), ignore_progress)
    _, run = read_directly(fast, tracked)
    assert (run.info.status, run.data.metrics[KEYS[0]]) == ("FINISHED", 1.0)


@pytest.mark.filterwarnings("ignore")
def test_model_is_not_registered_without_credentials(fast: Proxy, tmp_path: Path) -> None:
    folder = write_export("bert", tmp_path / "run")
    with track.run(track.TrackingStore(fast.uri), folder, None, METADATA):
        pass
    fast.status = 401
    with pytest.raises(BadInput) as refused:
        register(folder, folder / "export", "mine-without")
    assert CREDENTIAL_ADVICE in str(refused.value)
    assert "\n" not in str(refused.value)


def test_server_with_an_untrusted_certificate_counts_as_available(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow may trust it through MLFLOW_TRACKING_INSECURE_TLS or the certificate bundle of requests."""

    def refuse(reason: Exception) -> None:
        def urlopen(*args: object, **more: object) -> None:
            raise urllib.error.URLError(reason)

        monkeypatch.setattr("urllib.request.urlopen", urlopen)

    refuse(ssl.SSLCertVerificationError("self-signed certificate"))
    assert store_timeout.describe_failure("https://host") == ""
    refuse(ConnectionRefusedError("refused"))
    assert store_timeout.describe_failure("https://host") != ""


def test_refused_artifacts_name_the_credential_variables() -> None:
    error = OSError("401 Client Error: UNAUTHORIZED for url: http://host/artifacts")
    error.response = SimpleNamespace(status_code=401)  # type: ignore[attr-defined]
    assert summarize_error(error).endswith(CREDENTIAL_ADVICE)


# Timeouts of calls, with a clock that only the tests advance


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`now_s` is the current time, `answers` the result of a probe, and `asked` the number of probes."""
    found = SimpleNamespace(now_s=0.0, answers=True, asked=0)
    monkeypatch.setattr(store_timeout, "time", SimpleNamespace(monotonic=lambda: found.now_s))
    monkeypatch.setattr(store_timeout, "_silent", set())
    return found


@pytest.fixture
def call_timeout(clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> CallTimeout:
    found = CallTimeout("http://store")

    def asked() -> None:
        clock.asked += 1
        found._fails = not clock.answers
        if clock.answers:
            found._available_s, found._has_answered = clock.now_s, True

    monkeypatch.setattr(found, "_probe", lambda: None)
    found.probe = asked  # type: ignore[attr-defined]
    return found


def seconds_until_abandoned(
    call_timeout: Any, clock: SimpleNamespace, probe_interval_s: float, answer_interval_s: float, most_s: float
) -> float:
    """Return the seconds until the call is abandoned, or `most_s` if it is not."""
    while clock.now_s < most_s and not call_timeout.is_over():
        clock.now_s += 0.25
        if probe_interval_s and clock.now_s % probe_interval_s == 0:
            call_timeout.probe()
        if answer_interval_s and clock.now_s % answer_interval_s == 0:
            call_timeout.record_answer()
    return clock.now_s


@pytest.mark.parametrize(
    ("answers", "probe_interval_s", "answer_interval_s", "expected_s"),
    [
        (True, 0, 2.0, 600.0),  # each request is answered: no limit
        (True, 2.0, 0, store_timeout.MOST_S),  # a request is not answered, though probes are
        (True, 9.0, 0, store_timeout.MOST_S),  # the interval of the probes does not matter
        (True, 0, 9.0, 600.0),
        (True, 0, 0, store_timeout.ANSWER_S + 0.5),  # nothing is answered
        (False, 0.5, 0, store_timeout.FAILED_S),  # probes are refused
        (False, 0.5, 0.5, 600.0),  # only probes fail
    ],
)
def test_call_is_waited_for_while_answers_arrive(
    answers: bool,
    probe_interval_s: float,
    answer_interval_s: float,
    expected_s: float,
    call_timeout: Any,
    clock: SimpleNamespace,
) -> None:
    clock.answers = answers
    found_s = seconds_until_abandoned(call_timeout, clock, probe_interval_s, answer_interval_s, 600.0)
    assert found_s == pytest.approx(expected_s, abs=0.5)


def test_abandoned_store_has_a_shorter_timeout(call_timeout: Any, clock: SimpleNamespace) -> None:
    assert seconds_until_abandoned(call_timeout, clock, 0, 0, 600.0) > store_timeout.ANSWER_S
    began_s, again = clock.now_s, CallTimeout("http://store")
    again._probe = lambda: None  # type: ignore[method-assign]
    assert seconds_until_abandoned(again, clock, 0, 0, 600.0) - began_s == pytest.approx(
        store_timeout.SLOW_S + 0.5, abs=0.5
    )
    again.record_answer()
    assert "http://store" not in store_timeout._silent


def test_client_answers_reach_the_waiting_call() -> None:
    heard = list[str]()
    client: Any = MonitoredClient(SimpleNamespace(get_run=lambda run_id: run_id, name="a client"))
    assert (client.get_run("a"), client.name) == ("a", "a client")  # no call is being waited for

    class Listening(CallTimeout):
        def record_answer(self) -> None:
            heard.append("answer")

    with Listening("http://store"):
        assert client.get_run("b") == "b"
    assert heard == ["answer"]
    assert wait_while_available("http://store", lambda: client.get_run("c")) == "c"
