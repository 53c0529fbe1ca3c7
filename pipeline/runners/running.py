"""Run Apache Beam without its log output: runner, number of processes, one-line errors and progress reports."""

import argparse
import contextlib
import ctypes
import errno
import gc
import importlib
import io
import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pipeline.runners import workers
from preprocessing import errors, limits
from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import TEMPORARY, from_checked_json


@contextlib.contextmanager
def _quiet_import() -> Iterator[None]:
    """Suppress Beam's import warnings about missing cloud libraries, and the log handler that a warning installs.

    Imports of pandas and pymongo are blocked, because Beam imports them if they are installed. They take 40 MB in each
    process, and Sesame does not use the parts of Beam that need them.
    """
    handlers = list(logging.root.handlers)
    logging.disable(logging.CRITICAL)
    unused = {"pandas", "pymongo"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(unused))  # type: ignore[arg-type]  # None stops an import
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
        logging.root.handlers = handlers
        for name in unused:
            del sys.modules[name]


with _quiet_import():
    import apache_beam as beam
    import grpc
    from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
    from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    from pipeline.runners import loopback, services

__all__ = ["beam", "check_here", "check_options", "describe_services", "pipeline", "report_progress"]

_RUNNER: Final = "FnApiRunner"
_DATAFLOW: Final = "apache_beam.runners.dataflow.internal.apiclient"  # imported by the Dataflow runner at run time
Report = Callable[[dict[str, Any]], None]
# memory in bytes of a worker and of the main process (benchmarks/results/corpus-2026-11-20.md)
_WORKER, _BESIDE = 0.3e9, 0.4e9
ONE_PROCESS: Final = 150e6  # bytes of input; one process takes 20 s for it, and two are hardly faster
_OURS: Final = re.compile(r"^preprocessing\.errors\.(\w+): (.*?)(?: \[while running .*)?$", re.MULTILINE)
_SYSTEM: Final = re.compile(r"\w*Error: \[Errno (\d+)\] (.*?)(?: \[while running .*)?$", re.MULTILINE)
_UNREACHABLE: Final = re.compile(r"StatusCode\.UNAVAILABLE|failed to connect to all addresses", re.IGNORECASE)
_TAIL: Final = 4000  # characters of a worker log that are shown for an unexpected error


@contextlib.contextmanager
def pipeline(folder: Path, work_bytes: int, beam_args: Sequence[str] = ()) -> Iterator[beam.Pipeline]:
    """A pipeline that runs at the end of the `with` block, by default with FnApiRunner on all cores.

    Small inputs use one process. Options in `beam_args` take precedence. SesameError and OSError of a worker are raised
    in the same class here; a worker that dies raises ResourceError. Workers write their log to a file in `folder`,
    which is removed at the end.
    """
    if work_bytes >= ONE_PROCESS:
        _free_memory()
    options = check_here(beam_args)
    log, pids = (folder / f"{TEMPORARY}beam-{os.getpid()}.{name}" for name in ("log", "pids"))
    processes = _processes(beam_args, work_bytes)
    try:
        with _quiet_run() as failed:
            graph = beam.Pipeline(runner=_runner(options, processes, log, pids), options=options)
            yield graph
            if processes:
                workers.run(graph.run, pids, failed)
            else:
                graph.run().wait_until_finish()
    except Exception as error:
        if known := _interrupt(error) or _recover_error(error):
            raise known from None
        if log.exists():
            error.add_note(f"end of the worker log:\n{log.read_text(errors='replace')[-_TAIL:]}")
        raise
    finally:
        log.unlink(missing_ok=True)
        pids.unlink(missing_ok=True)


def _free_memory() -> None:
    """Free the memory of an earlier pipeline: collect its reference cycles and return memory to the system."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # no glibc
        ctypes.CDLL(None).malloc_trim(0)


class _Alarm(logging.Handler):
    """A handler of Beam's log that sets `failed` when a worker failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.failed = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "Error processing instruction" in record.getMessage():
            self.failed.set()


@contextlib.contextmanager
def _quiet_run() -> Iterator[threading.Event]:
    """Keep Beam's log off the terminal. The event is set when the log reports a failed worker."""
    logger, alarm = logging.getLogger("apache_beam"), _Alarm()
    before = logger.propagate
    logger.propagate = False
    logger.addHandler(alarm)
    try:
        yield alarm.failed
    finally:
        logger.removeHandler(alarm)
        logger.propagate = before


def check_options(beam_args: Sequence[str]) -> PipelineOptions:
    """Parse Beam's options. Raises BadInput for options and runners that Beam does not have.

    Beam itself would silently ignore them or print its whole usage message.
    """
    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):
            options = PipelineOptions(_without_negated_flags(beam_args))
            known = options.get_all_options().keys()
            passed = options.get_all_options(retain_unknown_options=True).keys()
    except SystemExit:
        raise BadInput(f"Beam options: {usage.getvalue().strip().splitlines()[-1]}") from None
    stray = [arg for arg in beam_args if not arg.startswith("-") and not _is_value(arg, beam_args)]
    names = (arg.partition("=")[0] for arg in beam_args if not _is_value(arg, beam_args))
    hyphened = [name for name in names if re.match("--?$|-[^-]|--.*-", name)]
    # Beam ignores --direct-num-workers without reporting it as unknown
    if unknown := sorted(passed - known) + stray + hyphened:
        raise BadInput(
            f"Beam options: unknown option {unknown[0]!r}; pass an option of Beam, e.g. --direct_num_workers=2"
        )
    _check_name(options.view_as(StandardOptions).runner or _RUNNER)
    return options


def check_here(beam_args: Sequence[str], connect: bool = True) -> PipelineOptions:
    """Like `check_options`. Also raises ResourceError if packages of the runner are not installed, or, with `connect`,
    if its job server or cluster does not answer, or Java is missing. Beam would wait for them without a message.
    """
    options = check_options(beam_args)
    runner = (options.view_as(StandardOptions).runner or "").rpartition(".")[2].lower()
    if "dataflow" in runner:
        try:
            with _quiet_import():
                importlib.import_module(_DATAFLOW)
        except ImportError:
            raise ResourceError("Beam: missing packages for Dataflow; run pip install 'apache_beam[gcp]'") from None
    if connect:
        services.require_services(options)
    return options


def describe_services(beam_args: Sequence[str]) -> list[str]:
    """A line for each service that the runner needs and that answers. Raises ResourceError like `check_here`."""
    return services.require_services(check_here(beam_args, connect=False))


def _check_name(runner: str) -> None:
    """Raise BadInput for an unknown runner. As in Beam, case and the suffix `Runner` do not matter."""
    known = StandardOptions.KNOWN_RUNNER_NAMES
    names = {name.lower().removesuffix("runner") for name in known}
    if "." not in runner and runner.lower().removesuffix("runner") not in names:
        raise BadInput(
            f"Beam options: invalid runner: got {runner}, expected one of {', '.join(known)} or the path of a class"
        )


def _without_negated_flags(beam_args: Sequence[str]) -> list[str]:
    """Options without `--no_NAME`, if NAME is a flag of Beam that is off by default and has no negative form.

    Raises BadInput if the flag is on by default, or if NAME is not a flag.
    """
    parsers: list[argparse.ArgumentParser] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    known = parsers[0]._option_string_actions
    words = []
    for arg in beam_args:
        name = arg.removeprefix("--no_")
        action = known.get(f"--{name}")
        if name == arg or arg in known or action is None:
            words.append(arg)
        elif action.nargs != 0:
            raise BadInput(f"Beam options: invalid {name}: got false, expected a value; it is not a flag")
        elif action.default:
            raise BadInput(f"Beam options: invalid {name}: got false, but Beam cannot switch it off; remove it")
    return words


def _is_value(arg: str, args: Sequence[str]) -> bool:
    at = list(args).index(arg)
    return at > 0 and args[at - 1].startswith("--") and "=" not in args[at - 1]


def _processes(beam_args: Sequence[str], work_bytes: int) -> int:
    """Number of worker processes to start here; 0 if this process or another runner does the work."""
    # Beam's own parser does not show whether a value is a default
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runner", default=_RUNNER)
    parser.add_argument("--direct_running_mode")
    parser.add_argument("--direct_num_workers", type=int)
    passed, _ = parser.parse_known_args(beam_args)
    cores = limits.processes(_WORKER, _BESIDE)
    default_num = cores if work_bytes >= ONE_PROCESS else 1
    # 0 means all cores in Beam
    num_workers = default_num if passed.direct_num_workers is None else passed.direct_num_workers or cores
    mode = passed.direct_running_mode or ("multi_processing" if num_workers > 1 else "in_memory")
    if passed.runner != _RUNNER or mode != "multi_processing":
        return 0
    return (passed.direct_num_workers or cores) if passed.direct_running_mode else num_workers


def _runner(options: PipelineOptions, processes: int, log: Path, pids: Path) -> FnApiRunner | None:
    """FnApiRunner unless the options name another: Beam's default would first search a binary on the network."""
    loopback.bind_to_loopback()
    if options.view_as(StandardOptions).runner not in (None, _RUNNER):
        return None
    if not processes:
        return FnApiRunner()
    direct = options.view_as(DirectOptions)
    # if direct_running_mode were set, Beam would use its own worker command
    direct.direct_num_workers, direct.direct_running_mode = processes, None
    return FnApiRunner(SubprocessSDKEnvironment.from_command_string(workers.command(log, pids)))


def _interrupt(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that `error` replaced, e.g. `orchestration.signals.Stopped`; None if there is none.

    If a signal interrupts a DoFn in this process, Beam raises a RuntimeError with the text of the interrupt.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _recover_error(error: Exception) -> BaseException | None:
    """The original error of a worker, recovered from Beam's error text; None if it indicates a bug."""
    text = "\n".join(traceback.format_exception_only(error))
    if "KeyboardInterrupt" in text:
        return KeyboardInterrupt()
    if ours := _OURS.findall(text):
        kind, message = ours[-1]
        return getattr(errors, kind)(message)
    if system := _SYSTEM.findall(text):
        number, message = system[-1]
        if int(number) == errno.ENOENT:
            return BadInput(
                f"Beam: file not found by a worker: {message}; make --data and --output-dir available at the same "
                "paths on all workers"
            )
        return OSError(int(number), message)
    if "Unable to fetch remote job server jar" in text:
        return ResourceError(
            "Beam: the job server jar is not a local file and cannot be downloaded; set flink_job_server_jar or "
            "spark_job_server_jar to its path"
        )
    if isinstance(error, grpc.FutureTimeoutError):
        return ResourceError("Beam: no job server responds at --job_endpoint; start it or correct the address")
    if _UNREACHABLE.search(text):
        return ResourceError(
            "Beam: the worker pool at --environment_config does not respond; start it or correct the address"
        )
    if isinstance(error, ImportError):
        return BadInput(f"Beam: {str(error).splitlines()[0]}")
    return workers.worker_died_error() if "Channel closed" in text else None


@contextlib.contextmanager
def report_progress(stage: str, folder: Path, parts: Sequence[str], report: Report | None) -> Iterator[None]:
    """Call `report` with totals over the seals of `parts`, twice a second during the block and once at its end.

    `report` receives {"stage", "done", "total" (parts), "documents", "bytes", "tokens" (kept so far)}. If the block
    continues after all parts are complete, e.g. to compare documents, it receives {"stage": "finishing ..."}.
    """
    if report is None:
        yield
        return
    seen: dict[str, dict[str, int]] = {}

    def report_totals() -> None:
        for part in parts:
            path = (folder / part).with_suffix(".json")
            if part not in seen:
                # missing, or damaged and about to be rewritten
                with contextlib.suppress(OSError, ValueError, KeyError):
                    seen[part] = from_checked_json(path.read_bytes())["ledger"]["kept"]
        totals = {name: sum(kept[name] for kept in seen.values()) for name in ("documents", "bytes", "tokens")}
        report({"stage": stage, "done": len(seen), "total": len(parts), **totals})

    finished = threading.Event()

    def report_until_finished() -> None:
        while not finished.wait(0.5):
            report_totals()
            if len(seen) == len(parts):
                return report({"stage": f"finishing {stage}"})

    thread = threading.Thread(target=report_until_finished, name=f"progress of {stage}", daemon=True)
    report_totals()
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
    if len(seen) < len(parts):
        report_totals()
