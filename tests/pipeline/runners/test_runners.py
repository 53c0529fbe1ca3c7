"""The same graphs on other runners: submissions to Flink, Spark and Dataflow, and a real portable job server."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestration.config import load_cluster
from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import JsonlReader
from pipeline.runners import beam, check_options, pipeline
from pipeline.spec import BeamSettings, Corpus
from pipeline.steps import read_text
from preprocessing.errors import BadInput, ResourceError
from preprocessing.manifest import Manifest
from preprocessing.tokenization import WordPiece
from tests.pipeline.conftest import story

HERE = ("--direct_running_mode=in_memory",)
SMALL = WordPiece(vocab_size=200)
TEXT = {"Parts", "Clean", "Keys", "All keys", "By key", "First of each", "Kept", "No bands", "Plan"}
ELSEWHERE = ("portable", "flink", "spark", "dataflow")  # cluster files for corpora that are made on other machines


def corpus_of(path: Path) -> Corpus:
    return Corpus(name="stories", sources=(JsonlReader(path=str(path)),), validation_ratio=0.1, test_ratio=0.1)


def build(corpus: Corpus, out: Path, beam_args: tuple[str, ...]) -> Manifest:
    """Run all three jobs."""
    read_text(corpus, out / "text", beam_args)
    train_vocab(out / "text", SMALL, out / "vocab", beam_args)
    return encode_corpus(out / "text", out / "vocab", corpus, out / "corpus", beam_args)


class Submitted(Exception):
    """Raised in place of a submission; it contains the graph."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph


@pytest.fixture
def submission(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], Any]:
    """Run a job up to its submission and return the graph."""

    class Service:
        def submit(self, graph: Any) -> None:
            raise Submitted(graph)

    # imported after pipeline.engine, which silences its log output
    from apache_beam.runners.portability.portable_runner import PortableRunner

    monkeypatch.setattr(PortableRunner, "create_job_service", lambda self, options: Service())
    monkeypatch.setattr("pipeline.runners.services.require_services", lambda options: [])

    def submitted(job: Callable[[], object]) -> Any:
        with pytest.raises(Submitted) as caught:
            job()
        return caught.value.graph

    return submitted


def steps(graph: Any) -> set[str]:
    """Return the names of the outermost steps."""
    (root,) = graph.root_transform_ids
    transforms = graph.components.transforms
    return {transforms[step].unique_name for step in transforms[root].subtransforms}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["portable", "flink", "spark"])
def test_submitted_graphs_have_the_expected_steps(
    name: str, submission: Any, write_jsonl: Callable[..., Path], tmp_path: Path
) -> None:
    arguments = tuple(load_cluster(name).beam.arguments)
    corpus = corpus_of(write_jsonl([story(number) for number in range(20)]))
    text, vocab = tmp_path / "text", tmp_path / "vocab"
    graph = submission(lambda: read_text(corpus, text, arguments))
    assert steps(graph) == TEXT
    (environment,) = graph.components.environments.values()
    assert environment.urn == "beam:env:external:v1"
    assert b"localhost:50000" in environment.payload
    read_text(corpus, text, HERE)
    assert steps(submission(lambda: train_vocab(text, SMALL, vocab, arguments))) == {"Vocabulary", "Train"}
    train_vocab(text, SMALL, vocab, HERE)
    graph = submission(lambda: encode_corpus(text, vocab, corpus, tmp_path / "corpus", arguments))
    assert steps(graph) == {"Shards", "Encode"}


def test_dataflow_options_are_valid_and_the_missing_extra_is_named(tmp_path: Path) -> None:
    """Beam first checks all options, then requires its own extra, which is not among our dependencies."""
    arguments = load_cluster("dataflow").beam.arguments
    with pytest.raises(ResourceError, match=r"apache_beam\[gcp\]"), pipeline(tmp_path, 0, arguments) as graph:
        graph | beam.Create([1])


@pytest.mark.parametrize("name", ELSEWHERE)
def test_options_of_the_shipped_clusters_are_valid_for_beam(name: str) -> None:
    """Beam's own parser gives each option the value of the file; Beam ignores unknown options silently."""
    of_file = load_cluster(name).beam
    read = check_options(of_file.arguments).get_all_options()
    assert read["runner"] == of_file.runner
    assert {key: read[key] for key in of_file.options} == of_file.options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paralelism": 4}, "unknown option 'paralelism'"),
        ({"parallelism": "many"}, "argument --parallelism: invalid int value: 'many'"),
        ({"direct_running_mode": "threads"}, "invalid choice: 'threads'"),
    ],
)
def test_an_unknown_or_invalid_beam_option_is_a_one_line_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as error:
        check_options(BeamSettings(runner="FlinkRunner", options=options).arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "options", [{"runner": "FlinkRunner"}, {"--parallelism": 4}, {"s3_secret_access_key": "abc"}, {"parallelism": None}]
)
def test_an_option_not_allowed_in_a_cluster_file_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^invalid beam\.options\."):
        BeamSettings(options=options)


@pytest.mark.parametrize("name", ["use_public_ips", "save_main_session", "streaming", "no_auth", "update"])
def test_a_beam_switch_set_to_false_is_off(name: str) -> None:
    """The value false used to be dropped silently, so Beam's default applied."""
    for value in (True, False):
        assert check_options(BeamSettings(options={name: value}).arguments).get_all_options()[name] is value


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("enable_streaming_engine", "got false, but Beam cannot switch it off"),
        ("s3_verify", "got false, expected a value"),
        ("parallelism", "got false, expected a value"),
        ("paralelism", "unknown option"),
    ],
)
def test_a_beam_option_that_cannot_be_false_is_refused(name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check_options(BeamSettings(options={name: False}).arguments)


@pytest.mark.slow
def test_an_unreachable_job_server_is_a_one_line_error(tmp_path: Path) -> None:
    more = ["--job_server_timeout=1", "--environment_type=EXTERNAL", "--environment_config=127.0.0.1:1"]
    arguments = ["--runner=PortableRunner", "--job_endpoint=127.0.0.1:1", *more]
    with pytest.raises(ResourceError, match="invalid job_endpoint"), pipeline(tmp_path, 0, arguments) as graph:
        graph | beam.Create([1])
    with socket.create_server(("127.0.0.1", 0)) as other:  # it listens, but is not a job server
        arguments = ["--runner=PortableRunner", f"--job_endpoint=127.0.0.1:{other.getsockname()[1]}", *more]
        with pytest.raises(ResourceError, match="no job server"), pipeline(tmp_path, 0, arguments) as graph:
            graph | beam.Create([1])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def portable() -> Iterator[tuple[str, ...]]:
    """Start a job server and a worker pool as separate processes, and yield their options."""
    # the pool starts the program named python
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": path}
    server, pool = free_port(), free_port()
    modules = [
        ["runners.portability.local_job_service_main", "--job_port", str(server)],
        ["runners.worker.worker_pool_main", "--service_port", str(pool)],
    ]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", f"apache_beam.{module}", *arguments],
            env=environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for module, *arguments in modules
    ]
    for port in (server, pool):
        wait_until(lambda port=port: socket.create_connection(("localhost", port), 1).close())
    yield (
        "--runner=PortableRunner",
        f"--job_endpoint=localhost:{server}",
        "--environment_type=EXTERNAL",
        f"--environment_config=localhost:{pool}",
    )
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(ready: Callable[[], object]) -> None:
    """Wait until `ready` no longer raises OSError."""
    for _ in range(3000):
        try:
            ready()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError


@pytest.mark.slow
class TestPortableJobServer:
    def test_it_makes_the_same_corpus(
        self, portable: tuple[str, ...], write_jsonl: Callable[..., Path], tmp_path: Path
    ) -> None:
        corpus = corpus_of(write_jsonl([story(number) for number in range(60)]))
        here, there = build(corpus, tmp_path / "here", HERE), build(corpus, tmp_path / "there", portable)
        assert here.digest == there.digest
        assert here.splits["train"]["rows"] > 40

    def test_bad_input_found_by_a_worker_is_a_one_line_error(
        self, portable: tuple[str, ...], write_jsonl: Callable[..., Path], tmp_path: Path
    ) -> None:
        corpus = corpus_of(write_jsonl(["too short"] * 20))
        with pytest.raises(BadInput, match=r"no usable text in 20 documents \(20 too_short\)"):
            read_text(corpus, tmp_path / "text", portable)

    def test_an_unreachable_worker_pool_is_a_one_line_error(
        self, portable: tuple[str, ...], write_jsonl: Callable[..., Path], tmp_path: Path
    ) -> None:
        corpus = corpus_of(write_jsonl([story(number) for number in range(20)]))
        elsewhere = (*portable[:3], f"--environment_config=localhost:{free_port()}")
        with pytest.raises(ResourceError, match="worker pool"):
            read_text(corpus, tmp_path / "text", elsewhere)
