"""Names and values as MLflow takes them: of metrics, parameters, tags, artifacts, runs, datasets and models.

MLflow refuses names with other characters than letters, digits and a few marks, names that would resolve to others as
paths, and long ones; one that it refuses costs all that is sent with it. Here such a name becomes a readable one with a
hash of the true one, so that two names never meet; the run's tag `sesame.name.NAME` has the true one. A name that is
fine stays as it is. Nothing else in Sesame makes an entity of MLflow from a name.
"""

import hashlib
import json
import math
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

from preprocessing.errors import BadInput

TRUE_NAME: Final = "sesame.name."  # how a tag begins that has the true name of what is named so in MLflow
LONGEST: Final = 5_000  # characters of a value of a tag or a parameter; MLflow's limits are 8,000 and 6,000
_LONGEST_KEY: Final = 250  # MLflow's limit, and that of its databases
_LONGEST_TITLE: Final = 250  # of a run; that of a dataset is 500
_LONGEST_PART: Final = 200  # bytes of a file's name; disks take 255
_LONGEST_MODEL, _LONGEST_EXPERIMENT = 256, 500
_READABLE: Final = 150  # characters that stay of a name that becomes another one
_MAPPED: Final = re.compile(r"-x[0-9a-f]{16}(\.\w{1,8})?$")  # how all names end that became others
_NO_KEY: Final = re.compile(r"[^/\w.\- :]")
_NO_PATH: Final = re.compile(r"[^/\w.\- ]")
_NO_TITLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_METRICS, _OTHERS = 1_000, 100  # MLflow's limits of metrics, and of parameters or tags, in one call
_BYTES: Final = 400_000  # of metrics or of others in one call; a server takes a million

Point = tuple[str, float, int, int]
"""A metric's name, its value, the time in milliseconds, the step."""


def key(name: str) -> str:
    """The name of a metric, a parameter or a tag as MLflow takes it.

    >>> key("eval/rte/pretrained_accuracy"), key("glue.mrpc (test)")
    ('eval/rte/pretrained_accuracy', 'glue.mrpc _test_-x1ff273d671e7f249')
    """
    is_fine = len(name) <= _LONGEST_KEY and not _NO_KEY.search(name) and _is_path(name) and name == name.strip()
    return name if is_fine and not _MAPPED.search(name) else _mapped(name, _NO_KEY)


def path(name: str) -> str:
    """The path of an artifact as stores and servers take it; its ending stays.

    >>> path("figures/scores.png"), path("figures/a#b.png"), path("../x")
    ('figures/scores.png', 'figures/a_b-x6397a86b31e72c6c.png', '_/x-xd6b96a97d147daaa')
    """
    is_short = all(len(part.encode(errors="replace")) <= _LONGEST_PART for part in name.split("/"))
    is_fine = is_short and len(name) <= _LONGEST_KEY and not _NO_PATH.search(name) and _is_path(name)
    if is_fine and not _MAPPED.search(name):
        return name
    ending = found[0] if (found := re.search(r"(?<=[^/])\.[A-Za-z0-9]{1,8}$", name)) else ""
    return _mapped(name, _NO_PATH, ending)


def title(name: str) -> str:
    """The name of a run or a dataset: any words, of which MLflow's databases take 250 characters.

    >>> title("eval/rte at step 1,000 of bert (mine)")
    'eval/rte at step 1,000 of bert (mine)'
    """
    is_fine = 0 < len(name) <= _LONGEST_TITLE and not _NO_TITLE.search(name)
    return name if is_fine and not _MAPPED.search(name) else _mapped(name, _NO_TITLE)


def model(name: str) -> str:
    """The name of a registered model, by which others ask for it: it stays, or is refused with BadInput."""
    is_fine = len(name.strip()) > 0 and len(name) <= _LONGEST_MODEL and not re.search("[/:]", name) and _is_path(name)
    if is_fine and not _NO_TITLE.search(name):
        return name
    raise BadInput(
        f"invalid model name: got {name[:60]!r}, expected 1 to {_LONGEST_MODEL} characters without / and :, other than "
        "a path; give another --name"
    )


def experiment(name: str) -> str:
    """The name of an experiment, which a user has chosen: it stays, or is refused with BadInput."""
    if len(name.strip()) > 0 and len(name) <= _LONGEST_EXPERIMENT and not _NO_TITLE.search(name):
        return name
    raise BadInput(
        f"invalid experiment name: got {name[:60]!r}, expected 1 to {_LONGEST_EXPERIMENT} printable characters; set "
        "MLFLOW_EXPERIMENT_NAME to another one, or unset it"
    )


def value(text: str) -> str:
    """The value of a parameter or a tag as databases take it; of a long one the beginning, with its length.

    >>> value("a\\x00b"), value("x" * 6_000)[-23:]
    ('a\\\\x00b', ' ... (6,000 characters)')
    """
    if len(text) > LONGEST:
        said = f" ... ({len(text):,} characters)"
        text = text[: LONGEST - len(said)] + said
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()


def _is_path(name: str) -> bool:
    """Whether MLflow takes a name that it may use as a path: one that resolves to itself, below where it is."""
    return posixpath.normpath(name) == name and name != "." and not name.startswith(("..", "/"))


def _mapped(name: str, refused: re.Pattern[str], ending: str = "") -> str:
    """What is readable of a name, and the hash of all of it; equal for equal names, other for others."""
    stem = name.removesuffix(ending) if ending else name
    plain = [part if part.strip(". ") else "_" for part in refused.sub("_", stem[:_READABLE]).split("/")]
    plain[0] = re.sub(r"^\.\.", "__", plain[0])
    short = "/".join(_cut(part) for part in plain).strip()
    return f"{short}-x{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}{ending}"


def _cut(part: str) -> str:
    return part.encode()[: _LONGEST_PART - 30].decode(errors="ignore")


# Entities


def metric(name: str, number: float | None, time_ms: int, step: int = 0) -> Any:
    """A point of a metric. What is not finite is NaN, which MLflow shows; it would store infinity as 1.8e308."""
    from mlflow.entities import Metric

    return Metric(key(name), number if number is not None and math.isfinite(number) else math.nan, time_ms, step)


def log_metrics(client: Any, run_id: str, points: Sequence[Point]) -> None:
    """Give a run points of metrics, in calls that a server takes, and the true names of those that are named
    otherwise there."""
    log_values(client, run_id, points, ())


def log_params(client: Any, run_id: str, params: Iterable[tuple[str, str]]) -> None:
    """Give a run parameters, as `log_metrics` does."""
    log_values(client, run_id, (), params)


def log_values(client: Any, run_id: str, points: Sequence[Point], params: Iterable[tuple[str, str]]) -> None:
    """Give a run points of metrics and parameters, as `log_metrics` does; both in one call, as each takes the time of a
    slow server."""
    from mlflow.entities import Param

    given = {name: value(text) for name, text in params}
    metrics = _batches([(metric(*point), len(point[0])) for point in points], _METRICS)
    others = _batches([(Param(key(name), text), _size(text)) for name, text in given.items()], _OTHERS)
    for one, other in zip_longest(metrics, others, fillvalue=()):
        client.log_batch(run_id, metrics=one, params=other)
    log_true_names(client, run_id, (*(name for name, *_ in points), *given))


def log_tags(client: Any, run_id: str, tags: Iterable[tuple[str, object]]) -> None:
    """Give a run tags, as `log_metrics` does."""
    given = {name: value(str(text)) for name, text in tags}
    given |= _true_names(given)
    _log_tags(client, run_id, given)


def log_true_names(client: Any, run_id: str, names: Iterable[str]) -> None:
    """Give a run the true names of those of these that MLflow has under others, as tags."""
    _log_tags(client, run_id, _true_names(names))


def _true_names(names: Iterable[str]) -> dict[str, str]:
    return {TRUE_NAME + key(name): value(name) for name in dict.fromkeys(names) if key(name) != name}


def _log_tags(client: Any, run_id: str, tags: dict[str, str]) -> None:
    from mlflow.entities import RunTag

    for batch in _batches([(RunTag(_tag(name), text), _size(text)) for name, text in tags.items()], _OTHERS):
        client.log_batch(run_id, tags=batch)


def _tag(name: str) -> str:
    return name if name.startswith(TRUE_NAME) else key(name)


def _batches(entities: Sequence[tuple[Any, int]], most: int) -> Iterator[list[Any]]:
    """The entities in groups that one call may have, by their number and by their sizes."""
    batch, size = list[Any](), 0
    for entity, one in entities:
        if batch and (len(batch) == most or size + one > _BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entity)
        size += one
    if batch:
        yield batch


def _size(text: str) -> int:
    """Bytes of a text in a request."""
    return len(json.dumps(text))
