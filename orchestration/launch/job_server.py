"""Jobs of a running Ray cluster, over the HTTP of its dashboard: sent, listed, followed, stopped."""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from preprocessing.errors import BadInput, ResourceError

ROOT: Final = Path(__file__).resolve().parents[2]  # the folder of our code
SERVER: Final = "RAY_API_SERVER_ADDRESS"  # in the environment: where the dashboard is, as for `ray job`
CONNECT_S = 4.0  # for a connection
FIRST_S = 6.0  # for the first answer; with the imports a dead address is said within 15 s
ANSWER_S = 300.0  # for a later answer: a job is answered once its process is there, which a busy head takes minutes for
AGENT_S = 60.0  # for the process of a cluster that starts jobs: its dashboard answers before it does
STOP_S = 120  # from SIGTERM to SIGKILL, for a checkpoint; by itself Ray gives a job 3 s
POLL_S = 0.5
MOST = 10_000  # machines that a dashboard lists, if it is asked for so many; by itself 100
SHIPPED: Final = ("orchestration", "pipeline", "preprocessing", "training", "sesame.py")
# of the folder of our code, as .gitignore writes it: nothing but SHIPPED goes to a cluster; to Ray the folder itself
# matches `/*`, and without `!/.` it sends an empty package
EXCLUDES: Final = ["/*", "!/.", *(f"!/{name}" for name in SHIPPED), "__pycache__"]
ACTIVE: Final = ("PENDING", "RUNNING")
NONE: Final[Mapping[str, str]] = MappingProxyType({})
ENDED: Final = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True)
class SubmittedJob:
    """One job of a cluster, as its dashboard knows it."""

    id: str
    status: str  # one of ACTIVE and ENDED
    command: str
    message: str = ""
    began: float = 0.0  # seconds since 1970; 0: not yet
    ended: float = 0.0  # seconds since 1970; 0: not yet
    exit_code: int | None = None  # of the command, once it has ended by itself


def server_url(given: str) -> str:
    """The address of a dashboard, from --address or the environment; BadInput where there is none, or it is no URL.

    >>> server_url("localhost:8265/"), server_url("https://head.example")
    ('http://localhost:8265', 'https://head.example')
    """
    address = given or os.environ.get(SERVER, "")
    if not address:
        raise BadInput(
            f"no cluster is named: give --address http://HOST:8265, the dashboard of a Ray cluster, or set {SERVER}"
        )
    url = (address if "://" in address else f"http://{address}").rstrip("/")
    port = re.fullmatch(r"https?://(?:[^/@\s:]+|\[[0-9a-fA-F:]+\])(?::(\d{1,5}))?(?:/\S*)?", url)
    if not port or int(port[1] or 0) >= 2**16:
        shown = re.sub(r"//[^/@\s]*@", "//***@", address)
        raise BadInput(
            f"--address is {shown}, allowed is http://HOST:PORT of a Ray dashboard (8265; 6379 and ray:// are others)"
        )
    return url


class JobServer:
    """The jobs of the cluster whose dashboard is at `url`. Each method raises ResourceError, in one line, where the
    dashboard does not answer or refuses."""

    def __init__(self, url: str) -> None:
        self.url = url
        with self._asking():
            self._client = _client(url)

    def jobs(self) -> list[SubmittedJob]:
        """All that were submitted, the oldest first."""
        with self._asking():
            found = [_submitted(each) for each in self._client.list_jobs() if each.submission_id]
        return sorted(found, key=lambda each: (each.began or float("inf"), each.id))

    def job(self, name: str) -> SubmittedJob:
        """The job of this id; BadInput where there is none."""
        with self._asking(name):
            return _submitted(self._client.get_job_info(name))

    def variable(self, name: str, key: str) -> str:
        """The variable `key` that a job was sent with, "" where it was sent without; BadInput where there is no job."""
        with self._asking(name):
            sent = self._client.get_job_info(name).runtime_env or {}
        return str(sent.get("env_vars", {}).get(key, ""))

    def num_nodes(self) -> int:
        """Machines of the cluster that are alive, its head among them."""
        return len(self._nodes())

    def room(self, cpus: int, gpus: int) -> int:
        """How many workers of so many cores and GPUs each its machines hold, whatever else runs there.

        The first machine of a cluster that has just started is waited for.
        """
        wanted = {name: number for name, number in (("CPU", cpus), ("GPU", gpus)) if number}
        upto = time.monotonic() + AGENT_S
        while not (nodes := self._nodes()) and time.monotonic() < upto:
            time.sleep(POLL_S)
        has = [node.get("resources_total") or {} for node in nodes]
        return sum(min(int(one.get(name, 0) // number) for name, number in wanted.items()) for one in has)

    def _nodes(self) -> list[dict[str, Any]]:
        """What the dashboard says of each machine that is alive."""
        with self._asking():
            found = self._client._do_request("GET", f"/api/v0/nodes?limit={MOST}").json()
        return [one for one in found["data"]["result"]["result"] if one.get("state") == "ALIVE"]

    def submit(self, name: str, command: str, more: Mapping[str, str] = NONE) -> None:
        """Send our code and start `command` in its folder, as the job `name`.

        `more` variables of the job stand in the cluster's table of jobs, for all to read that have its token.
        """
        variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S), "PYTHONUNBUFFERED": "1", **more}
        shipped = {"working_dir": str(ROOT), "excludes": list(EXCLUDES), "env_vars": variables}
        upto = time.monotonic() + AGENT_S
        while True:
            with self._asking(name):
                try:
                    self._client.submit_job(entrypoint=command, submission_id=name, runtime_env=shipped)
                except RuntimeError as error:  # 500: of a head that has just started
                    if "No available agent" not in str(error) or time.monotonic() > upto:
                        raise
                else:
                    return
            time.sleep(POLL_S)

    def stop(self, name: str) -> bool:
        """Ask a job to stop, as SIGTERM does; False where it has ended already. BadInput where there is none."""
        with self._asking(name):
            return bool(self._client.stop_job(name))

    def ended(self, name: str) -> SubmittedJob:
        """The job once it has ended, for which it gets STOP_S and a little more; BadInput where there is none."""
        upto = time.monotonic() + STOP_S + 15
        while (found := self.job(name)).status not in ENDED:
            if time.monotonic() > upto:
                raise ResourceError(f"{name} is still {found.status}; look again with `sesame status {name}`")
            time.sleep(POLL_S)
        return found

    def logs(self, name: str) -> str:
        """What a job has written so far, stdout and stderr; BadInput where there is none."""
        with self._asking(name):
            return str(self._client.get_job_logs(name))

    def follow(self, name: str, write: Callable[[str], Any]) -> None:
        """Hand on what a job has written and writes, until it ends; BadInput where there is none."""

        async def tail() -> None:
            async for text in self._client.tail_job_logs(name):
                write(text)

        self.job(name)
        with self._asking(name):
            asyncio.run(tail())

    @contextmanager
    def _asking(self, name: str = "") -> Iterator[None]:
        """What Ray and HTTP raise, in one line."""
        from ray.exceptions import AuthenticationError

        try:
            yield
        except AuthenticationError:
            raise self._refuses() from None
        except RuntimeError as error:
            said = " ".join(str(error).split())
            if name and "status code 404" in said:
                raise BadInput(f"{name} is no job of {self.url}; `sesame status` lists them") from None
            if "Version check" in said:
                raise self._no_dashboard() from None
            raise ResourceError(f"{self.url}: {said[-300:]}") from None
        except (ConnectionError, TimeoutError):
            raise self._dead() from None
        except ValueError:
            raise self._no_dashboard() from None
        except OSError as error:  # those of `requests` are
            if "HTTPError" in type(error).__name__:
                raise self._no_dashboard() from None
            if "ReadTimeout" in type(error).__name__:
                raise ResourceError(
                    f"{self.url}: connects, and then gives no answer; it is too busy, or no dashboard of Ray (8265); "
                    "see later, with `sesame status`, what is there"
                ) from None
            raise self._dead() from None
        except Exception as error:
            if not type(error).__module__.startswith("aiohttp"):  # of the stream of logs
                raise
            status = getattr(error, "status", None)
            if status in (401, 403):
                raise self._refuses() from None
            if status is None:
                raise self._dead() from None
            raise ResourceError(
                f"{self.url}: streams no logs of {name} (HTTP {status}); see them with `sesame logs {name}`, without "
                "--follow"
            ) from None

    def _refuses(self) -> ResourceError:
        return ResourceError(
            f"{self.url}: refuses without its token, or with another one; set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN_PATH=FILE, the token of that cluster"
        )

    def _dead(self) -> ResourceError:
        return ResourceError(
            f"{self.url}: no dashboard of Ray answers there; check host and port (8265), and that the cluster runs"
        )

    def _no_dashboard(self) -> ResourceError:
        return ResourceError(
            f"{self.url}: something answers there that is no dashboard of Ray 2; check the port (8265)"
        )


def _client(url: str) -> Any:
    """Ray's own client, which takes `url` and nothing from the environment, and waits for no answer for ever."""
    import ray
    from ray.dashboard.modules.dashboard_sdk import SubmissionClient
    from ray.job_submission import JobSubmissionClient

    for logger in ("ray", SubmissionClient.__module__):  # they say what is packed, file by file
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


def _submitted(details: Any) -> SubmittedJob:
    """Ray's details of a job, in seconds, without its environment: that may hold credentials."""
    return SubmittedJob(
        id=details.submission_id or details.job_id,
        status=getattr(details.status, "value", str(details.status)),
        command=details.entrypoint,
        message=(details.message or "").strip(),
        began=(details.start_time or 0) / 1000,
        ended=(details.end_time or 0) / 1000,
        exit_code=details.driver_exit_code,
    )
