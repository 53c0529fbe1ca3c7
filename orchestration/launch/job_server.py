"""Submit, list, follow and stop jobs of a running Ray cluster, through the HTTP API of its dashboard."""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from preprocessing.errors import BadInput, ResourceError

ROOT: Final = Path(__file__).resolve().parents[2]  # directory with the code of Sesame
SERVER: Final = (
    "RAY_API_SERVER_ADDRESS"  # environment variable with the address of the dashboard; `ray job` reads it too
)
CONNECT_S = 4.0  # timeout of a connection
FIRST_S = 6.0  # timeout of the first answer; with the imports, a dead address raises within 15 s
ANSWER_S = 300.0  # timeout of later answers; a busy head needs minutes to start the process of a submission
AGENT_S = 60.0  # timeout for the agent of a new cluster, which starts jobs: it becomes ready after the dashboard
STOP_S = 120  # seconds from SIGTERM to SIGKILL, so that a job can save a checkpoint; Ray's default is 3 s
POLL_S = 0.5
MOST = 10_000  # maximum nodes that the dashboard lists; Ray's default is 100
SHIPPED: Final = ("orchestration", "pipeline", "preprocessing", "training", "sesame.py")
# Files below ROOT that are not sent to a cluster, in the syntax of .gitignore: all except SHIPPED. For Ray the pattern
# `/*` also matches ROOT itself, so without `!/.` the package would be empty.
EXCLUDES: Final = ["/*", "!/.", *(f"!/{name}" for name in SHIPPED), "__pycache__"]
ACTIVE: Final = ("PENDING", "RUNNING")
NONE: Final[Mapping[str, str]] = MappingProxyType({})
ENDED: Final = ("SUCCEEDED", "FAILED", "STOPPED")
_ERROR: Final = "sesame: "  # begins the line of an error
_STAGE: Final = re.compile(r"[a-z][\w ]*: ")  # begins a line of progress, e.g. `waiting for 8 workers of 1 CPU: `


@dataclass(frozen=True)
class SubmittedJob:
    """A job of a cluster, as reported by its dashboard."""

    id: str
    status: str  # one of ACTIVE or ENDED
    command: str
    message: str = ""
    began: float = 0.0  # Unix time in seconds; 0 before the start
    ended: float = 0.0  # Unix time in seconds; 0 before the end
    exit_code: int | None = None  # exit code of the command, if it ended without a stop request


def has_server(option: str) -> bool:
    """Whether --address or the environment names a dashboard."""
    return bool(option or os.environ.get(SERVER, ""))


def server_url(option: str) -> str:
    """The URL of a dashboard, from --address or the environment. Raises BadInput if it is missing or invalid.

    >>> server_url("localhost:8265/"), server_url("https://head.example")
    ('http://localhost:8265', 'https://head.example')
    """
    address = option or os.environ.get(SERVER, "")
    if not address:
        raise BadInput(
            f"missing --address: expected http://HOST:8265 of a Ray dashboard; give --address or set {SERVER}"
        )
    url = (address if "://" in address else f"http://{address}").rstrip("/")
    port = re.fullmatch(r"https?://(?:[^/@\s:]+|\[[0-9a-fA-F:]+\])(?::(\d{1,5}))?(?:/\S*)?", url)
    if not port or int(port[1] or 0) >= 2**16:
        shown = re.sub(r"//[^/@\s]*@", "//***@", address)
        raise BadInput(
            f"invalid --address: got {shown}, expected http://HOST:PORT of a Ray dashboard; use port 8265 (6379 and "
            "ray:// are not the dashboard)"
        )
    return url


class JobServer:
    """The jobs of the cluster whose dashboard is at `url`.

    Each method raises ResourceError, in one line, if the dashboard does not answer or rejects the request. Methods with
    the id of a job raise BadInput if there is no such job.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        with self._explain_errors():
            self._client = _client(url)

    def jobs(self) -> list[SubmittedJob]:
        """All submitted jobs, the oldest first."""
        with self._explain_errors():
            jobs = [_from_details(each) for each in self._client.list_jobs() if each.submission_id]
        return sorted(jobs, key=lambda each: (each.began or float("inf"), each.id))

    def job(self, name: str) -> SubmittedJob:
        """The job with this id."""
        with self._explain_errors(name):
            return _from_details(self._client.get_job_info(name))

    def variable(self, name: str, key: str) -> str:
        """The environment variable `key` of a submitted job; "" if it was not set."""
        with self._explain_errors(name):
            sent = self._client.get_job_info(name).runtime_env or {}
        return str(sent.get("env_vars", {}).get(key, ""))

    def num_nodes(self) -> int:
        """Number of living nodes of the cluster, including the head."""
        return len(self._nodes())

    def room(self, cpus: int, gpus: int, *, wait: bool = True) -> int:
        """How many workers with these CPUs and GPUs each fit on all nodes, if nothing else runs there.

        With `wait`, it waits up to AGENT_S for the first node of a new cluster.
        """
        needs = {name: number for name, number in (("CPU", cpus), ("GPU", gpus)) if number}
        upto = time.monotonic() + (AGENT_S if wait else 0)
        while not (nodes := self._nodes()) and time.monotonic() < upto:
            time.sleep(POLL_S)
        total = [node.get("resources_total") or {} for node in nodes]
        return sum(min(int(one.get(name, 0) // number) for name, number in needs.items()) for one in total)

    def _nodes(self) -> list[dict[str, Any]]:
        """The dashboard's information about each living node."""
        with self._explain_errors():
            answer = self._client._do_request("GET", f"/api/v0/nodes?limit={MOST}").json()
        return [one for one in answer["data"]["result"]["result"] if one.get("state") == "ALIVE"]

    def submit(self, name: str, command: str, more: Mapping[str, str] = NONE) -> None:
        """Send the code of Sesame and start `command` in its directory, as the job `name`.

        `more` are environment variables of the job. They appear in the job table of the cluster, which everyone with
        its token can read.
        """
        variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S), "PYTHONUNBUFFERED": "1", **more}
        shipped = {"working_dir": str(ROOT), "excludes": list(EXCLUDES), "env_vars": variables}
        upto = time.monotonic() + AGENT_S
        while True:
            with self._explain_errors(name):
                try:
                    self._client.submit_job(entrypoint=command, submission_id=name, runtime_env=shipped)
                except RuntimeError as error:  # HTTP 500 of a head that has just started
                    if "No available agent" not in str(error) or time.monotonic() > upto:
                        raise
                else:
                    return
            time.sleep(POLL_S)

    def stop(self, name: str) -> bool:
        """Send SIGTERM to a job; False if it has already ended."""
        with self._explain_errors(name):
            return bool(self._client.stop_job(name))

    def wait_for_end(self, name: str) -> SubmittedJob:
        """Wait until a job has ended, and return it. Raises ResourceError if this takes 15 s longer than STOP_S."""
        upto = time.monotonic() + STOP_S + 15
        while (job := self.job(name)).status not in ENDED:
            if time.monotonic() > upto:
                raise ResourceError(f"{name} is still {job.status}; check again with `sesame status {name}`")
            time.sleep(POLL_S)
        return job

    def logs(self, name: str) -> str:
        """The output of a job so far, stdout and stderr."""
        with self._explain_errors(name):
            return str(self._client.get_job_logs(name))

    def with_report(self, job: SubmittedJob) -> SubmittedJob:
        """The job with the last line of its output as its message, if it runs, failed or was stopped: progress,
        or the error.

        The message of the dashboard remains if there is no output, for example because its node is gone.
        """
        if job.status in ("RUNNING", "FAILED", "STOPPED"):
            with suppress(BadInput, ResourceError):
                return replace(job, message=report_of(self.logs(job.id)) or job.message)
        return job

    def follow(self, name: str, write: Callable[[str], Any]) -> None:
        """Call `write` with the past and the new output of a job until it ends."""

        async def tail() -> None:
            async for text in self._client.tail_job_logs(name):
                write(text)

        self.job(name)
        with self._explain_errors(name):
            asyncio.run(tail())

    @contextmanager
    def _explain_errors(self, name: str = "") -> Iterator[None]:
        """Inside the block, errors of Ray and of HTTP become errors of one line."""
        from ray.exceptions import AuthenticationError

        try:
            yield
        except AuthenticationError:
            raise self._make_token_error() from None
        except RuntimeError as error:
            message = " ".join(str(error).split())
            if name and "status code 404" in message:
                raise BadInput(
                    f"invalid job {name}: {self.url} has no such job; list the jobs with `sesame status`"
                ) from None
            if "Version check" in message:
                raise self._not_a_dashboard() from None
            raise ResourceError(f"{self.url}: {message[-300:]}; check the log of the dashboard on the head") from None
        except (ConnectionError, TimeoutError):
            raise self._unreachable() from None
        except ValueError:
            raise self._not_a_dashboard() from None
        except OSError as error:  # base class of the errors of `requests`
            if "HTTPError" in type(error).__name__:
                raise self._not_a_dashboard() from None
            if "ReadTimeout" in type(error).__name__:
                raise ResourceError(
                    f"{self.url}: the server accepts connections but does not answer: it is busy, or not a Ray "
                    "dashboard; check the port (8265), then run `sesame status`"
                ) from None
            raise self._unreachable() from None
        except Exception as error:
            if not type(error).__module__.startswith("aiohttp"):  # raised while following the logs
                raise
            status = getattr(error, "status", None)
            if status in (401, 403):
                raise self._make_token_error() from None
            if status is None:
                raise self._unreachable() from None
            raise ResourceError(
                f"{self.url}: cannot follow the logs of {name} (HTTP {status}); run `sesame logs {name}` without "
                "--follow"
            ) from None

    def _make_token_error(self) -> ResourceError:
        file = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
        if file and not os.path.isfile(file):
            return ResourceError(
                f"{self.url}: the token file {file} does not exist, so its cluster may have ended; start it again, or "
                "set RAY_AUTH_TOKEN_PATH to the token of that cluster"
            )
        return ResourceError(
            f"{self.url}: the token is missing or wrong; set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN_PATH=FILE, the token of that cluster (Ray's default is ~/.ray/auth_token)"
        )

    def _unreachable(self) -> ResourceError:
        return ResourceError(
            f"{self.url}: no Ray dashboard answers; check host and port (8265), and that the cluster is running"
        )

    def _not_a_dashboard(self) -> ResourceError:
        return ResourceError(f"{self.url}: the server there is not a dashboard of Ray 2; check the port (8265)")


def report_of(log: str) -> str:
    """The last line in the output of a job that tells its progress, or why it ended; "" if there is none.

    >>> report_of("corpus: done, skipped\\npretrain: 160/400  3:10 left  loss 5.818\\n(raylet) a note of Ray\\n")
    'pretrain: 160/400  3:10 left  loss 5.818'
    >>> report_of("starting workers: 0:01\\nwaiting for 8 workers of 1 CPU: 2:30  Ray has 2 CPUs (2 free)\\n")
    'waiting for 8 workers of 1 CPU: 2:30  Ray has 2 CPUs (2 free)'
    >>> report_of("pretrain: 1/400\\nsesame: gpt2: no text\\n"), report_of("ModuleNotFoundError: No module named 'x'")
    ('gpt2: no text', "ModuleNotFoundError: No module named 'x'")
    """
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    stages = [line for line in lines if _STAGE.match(line)]
    return (errors or stages or lines or [""])[-1]


def _client(url: str) -> Any:
    """Ray's client for the address `url`. It uses no environment variables, and each answer has a timeout."""
    import ray
    from ray.dashboard.modules.dashboard_sdk import SubmissionClient
    from ray.job_submission import JobSubmissionClient

    for logger in ("ray", SubmissionClient.__module__):  # they would log each packed file
        logging.getLogger(logger).setLevel(logging.ERROR)

    class Client(JobSubmissionClient):
        def __init__(self) -> None:
            self._client_ray_version = ray.__version__
            SubmissionClient.__init__(self, address=url)
            self._check_connection_and_version(min_version="2.0")

        def _do_request(self, method: str, endpoint: str, **more: Any) -> Any:
            limit_s = FIRST_S if endpoint == "/api/version" else ANSWER_S
            return super()._do_request(method, endpoint, timeout=(CONNECT_S, limit_s), **more)

    return Client()


def _from_details(details: Any) -> SubmittedJob:
    """Convert Ray's details of a job. The environment is left out, because it may contain credentials."""
    return SubmittedJob(
        id=details.submission_id or details.job_id,
        status=getattr(details.status, "value", str(details.status)),
        command=details.entrypoint,
        message=(details.message or "").strip(),
        began=(details.start_time or 0) / 1000,
        ended=(details.end_time or 0) / 1000,
        exit_code=details.driver_exit_code,
    )
