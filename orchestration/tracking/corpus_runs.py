"""Builds of corpora as MLflow runs, in the experiment "corpora": settings, progress, results, and the data card.

If a finished run of the store has a corpus with the same digest, no second run is created. A build that did not finish
resumes its run.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestration.config import to_non_defaults
from orchestration.progress import Paces, Report, ignore_progress
from orchestration.tracking import names
from orchestration.tracking import runs as track
from orchestration.tracking.metadata import FOLDER, Metadata, log_corpus, log_metadata, run_name
from orchestration.tracking.runs import TrackedRun, TrackingStore
from orchestration.tracking.store_timeout import wait_while_available
from pipeline.own_filter import read_own_filter
from pipeline.spec import Corpus
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from preprocessing.tokenization import TokenizerSpec

if TYPE_CHECKING:  # the import takes a second
    from matplotlib.figure import Figure

EXPERIMENT: Final = "corpora"
EVERY_S: Final = 5.0  # seconds between two batches of metrics

# Tags:
DIGEST: Final = "sesame.corpus_digest"  # digest of the manifest, once it exists
CARD: Final = "sesame.data_card"  # set to "logged" when the run has a data card


@dataclass(frozen=True)
class CorpusRun:
    """The run of a corpus. If the run was finished before (`is_known`), only a data card can still be added."""

    tracked: TrackedRun
    is_known: bool
    progress: "_ProgressLog | None" = field(default=None, compare=False)  # None for a finished run


def corpus_metadata(corpus: Corpus, vocab: TokenizerSpec, command: str = "") -> Metadata:
    """The metadata of the run: non-default values as parameters, and all values in the artifact corpus.json.

    The code of the corpus's own filters is stored, too.
    """
    note = "\n".join(f"* {source.describe()}" for source in corpus.sources)
    return Metadata(
        corpus.name,
        {"corpus": to_non_defaults(corpus), "vocab": to_non_defaults(vocab)},
        {"command": command},
        note=f"The text `{corpus.name}`, cleaned and tokenized.\n\n{note}",
        files={
            "corpus.json": json.dumps({"corpus": asdict(corpus), "vocab": asdict(vocab)}, indent=1),
            **{f"filter_{Path(file).name}": read_own_filter(file).code for file in corpus.clean.own_filters},
        },
    )


@contextmanager
def corpus_run(place: TrackingStore, folder: Path, metadata: Metadata) -> Iterator[CorpusRun]:
    """The run in which the corpus of `folder` is built: RUNNING inside the block, then FINISHED, KILLED or FAILED.

    After the block succeeds, the corpus becomes the run's dataset and its counts become metrics. The caller holds the
    lock of the directory's job. Raises ResourceError if the store does not answer.
    """

    def find_run(client: Any) -> CorpusRun:
        if known := _find_finished_run(client, place, folder):
            return CorpusRun(TrackedRun(place.uri, known), is_known=True)
        name, tags = run_name(metadata.name, folder), {FOLDER: _uri(folder)}
        tracked = _find_unfinished_run(client, place, folder) or track.create_run(
            client, place, name, EXPERIMENT, **tags
        )
        return CorpusRun(tracked, is_known=False, progress=_ProgressLog(tracked))

    run = track.query_store(place, find_run)
    if run.is_known:
        yield run
        return
    client, run_id = track.client_of(place.uri), run.tracked.run_id
    with track.heartbeat(run.tracked):
        with track.log_and_suppress("the metadata of the run"):
            wait_while_available(place.uri, lambda: log_metadata(client, run_id, metadata, folder))
        began_s = time.monotonic()
        yield run
        manifest, took_s = Manifest.load(folder), time.monotonic() - began_s
        if run.progress:
            run.progress.close()

        def send() -> None:
            log_corpus(client, run_id, folder, "corpus")
            _log_metrics(client, run_id, _counts(manifest) | {"seconds": took_s}, step=0)
            client.set_tag(run_id, DIGEST, manifest.digest)  # set last, because this tag marks the run as complete

        with track.log_and_suppress("the results of the corpus"):
            wait_while_available(place.uri, send)


def corpus_progress(run: CorpusRun) -> Report:
    """A report function that logs documents, bytes, tokens and their rates as metrics, over the seconds since the run
    started."""
    return ignore_progress if run.is_known else run.progress or _ProgressLog(run.tracked)


def log_card(run: CorpusRun, files: Sequence[Path], figures: Mapping[str, "Figure"]) -> None:
    """Log the files and figures of a data card as artifacts, unless the run has a card: equal corpora have equal cards.

    The files are below card/, the figures below figures/.
    """
    tracked = run.tracked

    def send() -> None:
        client = track.client_of(tracked.uri)
        if CARD in client.get_run(tracked.run_id).data.tags:
            return
        for file in files:
            client.log_artifact(tracked.run_id, str(file), "card")
        track.log_figures(tracked, figures)
        client.set_tag(tracked.run_id, CARD, "logged")

    with track.log_and_suppress("the data card"):
        wait_while_available(tracked.uri, send)


class _ProgressLog:
    """Logs metrics of the stages every few seconds and at the end of each stage, in a thread, so that a slow store
    delays nothing.

    After a failure it sends nothing more.
    """

    def __init__(self, tracked: TrackedRun) -> None:
        self.tracked, self.paces, self.next_at = tracked, Paces(), 0.0
        self._pending: list[tuple[float, Mapping[str, float]]] = []  # time and values
        self._began_s = 0.0  # start time of the run; a resumed build continues its time axis
        self._fails = False
        self._sender: threading.Thread | None = None

    def __call__(self, event: Mapping[str, Any]) -> None:
        rates, now_s = self.paces(event), time.monotonic()
        if rates is None or self._fails or (now_s < self.next_at and event["done"] < event["total"]):
            return
        self.next_at = now_s + EVERY_S
        values = {name: event[name] for name in ("documents", "bytes", "tokens") if name in event}
        values |= {"bytes_per_second": rates.bytes_per_s, "tokens_per_second": rates.tokens_per_s}
        points = {f"{event['stage']}/{key}": values[key] for key in values}
        self._pending.append((time.time(), points))
        if self._sender is None or not self._sender.is_alive():
            self._sender = threading.Thread(target=self._send, daemon=True, name="mlflow corpus")
            self._sender.start()

    def close(self) -> None:
        """Wait until all metrics are sent, while the store answers."""
        if self._sender:
            self._sender.join()  # its calls are given up if the store does not answer
        self._send()

    def _send(self) -> None:
        while self._pending and not self._fails:
            is_sent = False
            with track.log_and_suppress("the progress of the corpus"):
                wait_while_available(self.tracked.uri, partial(self._send_points, list(self._pending)))
                is_sent = True
            self._fails = not is_sent

    def _send_points(self, pending: Sequence[tuple[float, Mapping[str, float]]]) -> None:
        client, run_id = track.client_of(self.tracked.uri), self.tracked.run_id
        self._began_s = self._began_s or client.get_run(run_id).info.start_time / 1000
        points = [
            (key, float(value), int(1000 * time_s), int(time_s - self._began_s))
            for time_s, values in pending
            for key, value in values.items()
        ]
        names.log_metrics(client, run_id, points)
        del self._pending[: len(pending)]


def _find_finished_run(client: Any, place: TrackingStore, folder: Path) -> str:
    """ID of the finished run of this corpus; "" if there is none."""
    try:
        digest = Manifest.load(folder).digest
    except BadInput:  # the corpus does not exist yet, or must be repaired
        return ""
    return next((run.info.run_id for run in _search(client, place, DIGEST, digest, "= 'FINISHED'")), "")


def _find_unfinished_run(client: Any, place: TrackingStore, folder: Path) -> TrackedRun | None:
    """The latest unfinished run for this directory, now owned by this process; None if there is none."""
    for run in _search(client, place, FOLDER, _uri(folder), "!= 'FINISHED'"):
        return track.claim_run(client, place, run, folder)
    return None


def _search(client: Any, place: TrackingStore, tag: str, value: str, status: str) -> list[Any]:
    """The latest run that matches, as a list; [] if there is none."""
    where = f"tags.`{tag}` = '{value}' and attributes.status {status}"
    experiments = [track.experiment(client, place, EXPERIMENT)]
    return client.search_runs(experiments, where, order_by=["attributes.start_time DESC"], max_results=1)


def _uri(folder: Path) -> str:
    return folder.resolve().as_uri()  # a URI has no quotes, so that it can be part of a filter


def _counts(manifest: Manifest) -> dict[str, float]:
    """The counts of a manifest as metrics.

    >>> from preprocessing.manifest import Count, Ledger
    >>> ledger = Ledger(Count(3, 30), Count(2, 20, 9), {"empty": Count(1, 10)})
    >>> counts = _counts(Manifest("x", "", "", {}, {}, (), ledger))
    >>> counts["tokens"], counts["dropped/empty/bytes"]
    (9, 10)
    """
    ledger = manifest.ledger
    counts: dict[str, float] = {name: getattr(ledger.kept, name) for name in ("documents", "bytes", "tokens")}
    counts |= {"seen/documents": ledger.seen.documents, "seen/bytes": ledger.seen.bytes}
    for reason, dropped in ledger.dropped.items():
        counts |= {f"dropped/{reason}/documents": dropped.documents, f"dropped/{reason}/bytes": dropped.bytes}
    return counts | {f"{split}/tokens": count["tokens"] for split, count in manifest.splits.items()}


def _log_metrics(client: Any, run_id: str, values: Mapping[str, float], step: int) -> None:
    now_ms = int(time.time() * 1000)
    names.log_metrics(client, run_id, [(key, float(value), now_ms, step) for key, value in values.items()])
