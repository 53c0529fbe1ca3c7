"""Apache Beam, run quietly: which runner, how many processes, errors in one line, and progress while it works."""

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
    """Beam warns at import about every cloud library that is not there, and the first warning adds a log handler.

    It also imports what parts of it use that Sesame does not, where it happens to be installed: 40 MB in each process.
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

__all__ = ["beam", "check_here", "check_options", "pipeline", "report_progress"]

_RUNNER: Final = "FnApiRunner"
_DATAFLOW: Final = "apache_beam.runners.dataflow.internal.apiclient"  # what the runner of Dataflow imports as it runs
Report = Callable[[dict[str, Any]], None]
_WORKER, _BESIDE = 0.3e9, 0.4e9  # bytes of a worker, and of the main process (benchmarks/results/corpus-2026-11-20.md)
ONE_PROCESS: Final = 50e6  # bytes of input up to which starting more processes costs more than it gains
_OURS: Final = re.compile(r"^preprocessing\.errors\.(\w+): (.*?)(?: \[while running .*)?$", re.MULTILINE)
_SYSTEM: Final = re.compile(r"\w*Error: \[Errno (\d+)\] (.*?)(?: \[while running .*)?$", re.MULTILINE)
_UNREACHABLE: Final = re.compile(r"StatusCode\.UNAVAILABLE|failed to connect to all addresses", re.IGNORECASE)
_TAIL: Final = 4000  # characters of a worker's log that an unforeseen error shows


@contextlib.contextmanager
def pipeline(folder: Path, work_bytes: int, beam_args: Sequence[str] = ()) -> Iterator[beam.Pipeline]:
    """A pipeline that runs when the block ends: FnApiRunner, on all cores where the work is worth it.

    `beam_args` are Beam's own options and come first. An error of a worker is raised here in its own class
    (SesameError, OSError); a worker that died is a ResourceError. Workers write their log to a file in `folder`, which
    is removed at the end.
    """
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
        if known := _known_error(error):
            raise known from None
        if log.exists():
            error.add_note(f"the workers' log ends with:\n{log.read_text(errors='replace')[-_TAIL:]}")
        raise
    finally:
        log.unlink(missing_ok=True)
        pids.unlink(missing_ok=True)


def _free_memory() -> None:
    """Free the memory of an earlier pipeline, whose objects refer to each other; the C library would keep it."""
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
    """Keep Beam's log off the terminal; the event is set when it says that a worker failed."""
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
    """Beam's options; BadInput for those that Beam would ignore in silence or answer with a page of usage, and for a
    runner that there is not."""
    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):
            options = PipelineOptions(_without_what_is_off(beam_args))
            known = options.get_all_options().keys()
            given = options.get_all_options(retain_unknown_options=True).keys()
    except SystemExit:
        raise BadInput(f"Beam options: {usage.getvalue().strip().splitlines()[-1]}") from None
    stray = [arg for arg in beam_args if not arg.startswith("-") and not _is_value(arg, beam_args)]
    names = (arg.partition("=")[0] for arg in beam_args if not _is_value(arg, beam_args))
    hyphened = [name for name in names if re.match("--?$|-[^-]|--.*-", name)]
    if unknown := sorted(given - known) + stray + hyphened:  # Beam drops --direct-num-workers, and takes it for known
        raise BadInput(f"Beam options: {unknown[0]!r} is unknown to Beam; an example of one is --direct_num_workers=2")
    _check_name(options.view_as(StandardOptions).runner or _RUNNER)
    return options


def check_here(beam_args: Sequence[str]) -> PipelineOptions:
    """The same, and ResourceError where packages that the runner needs are not installed here."""
    options = check_options(beam_args)
    if "dataflow" in (options.view_as(StandardOptions).runner or "").lower():
        try:
            with _quiet_import():
                importlib.import_module(_DATAFLOW)
        except ImportError:
            raise ResourceError(
                "Beam: Dataflow needs packages that are not installed; run pip install 'apache_beam[gcp]'"
            ) from None
    return options


def _check_name(runner: str) -> None:
    """BadInput for the name of a runner that Beam does not have; it takes them without `Runner` and in any case."""
    known = StandardOptions.KNOWN_RUNNER_NAMES
    names = {name.lower().removesuffix("runner") for name in known}
    if "." not in runner and runner.lower().removesuffix("runner") not in names:
        raise BadInput(f"Beam options: runner is {runner}, allowed are {', '.join(known)}, or the path of a class")


def _without_what_is_off(beam_args: Sequence[str]) -> list[str]:
    """The options without `--no_NAME` where Beam knows only `--NAME`, which is off by itself; BadInput where it is on,
    or is no switch."""
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
            raise BadInput(f"Beam options: {name} is false, allowed is a value: it is no switch")
        elif action.default:
            raise BadInput(f"Beam options: {name} is false, allowed is true: Beam has no option that switches it off")
    return words


def _is_value(arg: str, args: Sequence[str]) -> bool:
    at = list(args).index(arg)
    return at > 0 and args[at - 1].startswith("--") and "=" not in args[at - 1]


def _processes(beam_args: Sequence[str], work_bytes: int) -> int:
    """How many worker processes are ours to start; 0: the work is done in this process, or by another runner."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)  # Beam gives defaults and choices alike
    parser.add_argument("--runner", default=_RUNNER)
    parser.add_argument("--direct_running_mode")
    parser.add_argument("--direct_num_workers", type=int)
    given, _ = parser.parse_known_args(beam_args)
    cores = limits.processes(_WORKER, _BESIDE)
    worth = cores if work_bytes >= ONE_PROCESS else 1
    wanted = worth if given.direct_num_workers is None else given.direct_num_workers or cores  # Beam's 0 is all cores
    mode = given.direct_running_mode or ("multi_processing" if wanted > 1 else "in_memory")
    if given.runner != _RUNNER or mode != "multi_processing":
        return 0
    return (given.direct_num_workers or cores) if given.direct_running_mode else wanted


def _runner(options: PipelineOptions, processes: int, log: Path, pids: Path) -> FnApiRunner | None:
    """FnApiRunner unless the options name another: Beam's default looks for a binary on the network first."""
    if options.view_as(StandardOptions).runner not in (None, _RUNNER):
        return None
    if not processes:
        return FnApiRunner()
    direct = options.view_as(DirectOptions)
    direct.direct_num_workers, direct.direct_running_mode = processes, None  # the mode would bring Beam's own command
    return FnApiRunner(SubprocessSDKEnvironment.from_command_string(workers.command(log, pids)))


def _known_error(error: Exception) -> BaseException | None:
    """The error of a worker that is no bug, from the text that Beam makes of it; None for a bug."""
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
                f"Beam: a worker finds {message}; all of them must see --data and --output-dir, by the same paths"
            )
        return OSError(int(number), message)
    if "Unable to fetch remote job server jar" in text:
        return ResourceError(
            "Beam: its job server is no file here and cannot be fetched; name the jar by flink_job_server_jar or "
            "spark_job_server_jar"
        )
    if isinstance(error, grpc.FutureTimeoutError):
        return ResourceError("Beam: no job server answers at --job_endpoint; start it, or mend the address")
    if _UNREACHABLE.search(text):
        return ResourceError("Beam: the worker pool at --environment_config cannot be reached; start it, or mend it")
    if isinstance(error, ImportError):
        return BadInput(f"Beam: {str(error).splitlines()[0]}")
    return workers.worker_died_error() if "Channel closed" in text else None


@contextlib.contextmanager
def report_progress(stage: str, folder: Path, parts: Sequence[str], report: Report | None) -> Iterator[None]:
    """Call `report` with the seals of `parts` summed up, twice a second while the block runs, and once at its end.

    It gets {"stage", "done", "total" (parts), "documents", "bytes", "tokens" (kept so far)}; where the block goes on
    when all parts are there (to compare documents, say), {"stage": "finishing ..."}.
    """
    if report is None:
        yield
        return
    seen: dict[str, dict[str, int]] = {}

    def report_totals() -> None:
        for part in parts:
            path = (folder / part).with_suffix(".json")
            if part not in seen:
                with contextlib.suppress(OSError, ValueError, KeyError):  # not there yet, or damaged: it is made again
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
