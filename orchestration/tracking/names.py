"""Names and values in the form that MLflow accepts: metrics, parameters, tags, artifacts, runs, datasets and models.

MLflow refuses long names, names with characters other than letters, digits and a few marks, and names that are
ambiguous as paths. One refused name makes the whole request fail. So this module replaces each of these names by a
readable name with a hash of the original name. The hash prevents collisions. The tag `sesame.name.NAME` of the run
contains the original name. Valid names do not change. All MLflow entities of Sesame get their names here.
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

TRUE_NAME: Final = "sesame.name."  # prefix of the tag with the original name of a replaced name
LONGEST: Final = 5_000  # maximum characters of a tag or parameter value; MLflow's limits are 8,000 and 6,000
_LONGEST_KEY: Final = 250  # limit of MLflow, and of its databases
_LONGEST_TITLE: Final = 250  # limit of run names; the limit of dataset names is 500
_LONGEST_PART: Final = 200  # maximum bytes of a file name; disks allow 255
_LONGEST_MODEL, _LONGEST_EXPERIMENT = 256, 500
_READABLE: Final = 150  # maximum characters that a replaced name shares with its original
_MAPPED: Final = re.compile(r"-x[0-9a-f]{16}(\.\w{1,8})?$")  # the suffix of all replaced names
_NO_KEY: Final = re.compile(r"[^/\w.\- :]")
_NO_PATH: Final = re.compile(r"[^/\w.\- ]")
_NO_LOGGED_MODEL: Final = re.compile(r"[/:.%\"'\x00-\x1f\x7f\ud800-\udfff]")
_NO_TITLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_METRICS, _OTHERS = 1_000, 100  # MLflow's limits of metrics, and of parameters or tags, in one call
_BYTES: Final = 400_000  # maximum bytes of metrics, or of other entities, in one call; a server accepts a million

Point = tuple[str, float, int, int]
"""A metric's name, its value, the time in milliseconds, the step."""


def key(name: str) -> str:
    """A valid name for a metric, a parameter or a tag.

    >>> key("eval/rte/pretrained_accuracy"), key("glue.mrpc (test)")
    ('eval/rte/pretrained_accuracy', 'glue.mrpc _test_-x1ff273d671e7f249')
    """
    is_fine = len(name) <= _LONGEST_KEY and not _NO_KEY.search(name) and _is_path(name) and name == name.strip()
    return name if is_fine and not _MAPPED.search(name) else _replacement(name, _NO_KEY)


def path(name: str) -> str:
    """A valid artifact path for stores and servers; its file extension is kept.

    >>> path("figures/scores.png"), path("figures/a#b.png"), path("../x")
    ('figures/scores.png', 'figures/a_b-x6397a86b31e72c6c.png', '_/x-xd6b96a97d147daaa')
    """
    is_short = all(len(part.encode(errors="replace")) <= _LONGEST_PART for part in name.split("/"))
    is_fine = is_short and len(name) <= _LONGEST_KEY and not _NO_PATH.search(name) and _is_path(name)
    if is_fine and not _MAPPED.search(name):
        return name
    ending = match[0] if (match := re.search(r"(?<=[^/])\.[A-Za-z0-9]{1,8}$", name)) else ""
    return _replacement(name, _NO_PATH, ending)


def title(name: str) -> str:
    """A valid name for a run or a dataset: any characters, at most 250, the limit of MLflow's databases.

    >>> title("eval/rte at step 1,000 of bert (mine)")
    'eval/rte at step 1,000 of bert (mine)'
    """
    is_fine = 0 < len(name) <= _LONGEST_TITLE and not _NO_TITLE.search(name)
    return name if is_fine and not _MAPPED.search(name) else _replacement(name, _NO_TITLE)


def model(name: str) -> str:
    """The name of a registered model. It is not replaced, because users refer to it; raises BadInput if it is
    invalid."""
    is_fine = len(name.strip()) > 0 and len(name) <= _LONGEST_MODEL and not re.search("[/:]", name) and _is_path(name)
    if is_fine and not _NO_TITLE.search(name):
        return name
    raise BadInput(
        f"invalid model name: got {name[:60]!r}, expected 1 to {_LONGEST_MODEL} characters without / and :, and not a "
        "relative path; set another --name"
    )


def alias(name: str) -> str:
    """An alias of a version of a registered model; raises BadInput if MLflow does not take it.

    >>> alias("champion")
    'champion'
    """
    is_reserved = name.lower() == "latest" or re.fullmatch(r"[vV]\d+", name)
    if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name) and not is_reserved:
        return name
    raise BadInput(
        f"invalid --alias: got {name[:60]!r}, expected 1 to 100 letters, digits, _ and -, except latest, v1, v2 ...; "
        "set another alias"
    )


def model_of_run(name: str) -> str:
    """A valid name for a logged model, without the characters / : . % and quotes.

    >>> model_of_run("gpt2_tiny-10a7-step-200"), model_of_run("t5_1.1-step-8")
    ('gpt2_tiny-10a7-step-200', 't5_1_1-step-8-xbf9a64ce9cdf33a2')
    """
    is_fine = 0 < len(name) <= _LONGEST_TITLE and not _NO_LOGGED_MODEL.search(name)
    return name if is_fine and not _MAPPED.search(name) else _replacement(name, _NO_LOGGED_MODEL)


def experiment(name: str) -> str:
    """The name of an experiment. It is not replaced, because a user has chosen it; raises BadInput if it is invalid."""
    if len(name.strip()) > 0 and len(name) <= _LONGEST_EXPERIMENT and not _NO_TITLE.search(name):
        return name
    raise BadInput(
        f"invalid experiment name: got {name[:60]!r}, expected 1 to {_LONGEST_EXPERIMENT} printable characters; set "
        "MLFLOW_EXPERIMENT_NAME to another one, or unset it"
    )


def value(text: str) -> str:
    """A valid value of a parameter or a tag: a long value is truncated and ends with its length.

    >>> value("a\\x00b"), value("x" * 6_000)[-23:]
    ('a\\\\x00b', ' ... (6,000 characters)')
    """
    if len(text) > LONGEST:
        ending = f" ... ({len(text):,} characters)"
        text = text[: LONGEST - len(ending)] + ending
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()


def _is_path(name: str) -> bool:
    """Whether MLflow accepts a name that it may use as a path: the name must be normalized and stay below its
    parent."""
    return posixpath.normpath(name) == name and name != "." and not name.startswith(("..", "/"))


def _replacement(name: str, refused: re.Pattern[str], ending: str = "") -> str:
    """The readable part of a name with a hash of the whole name; equal for equal names and different for different
    names."""
    stem = name.removesuffix(ending) if ending else name
    plain = [part if part.strip(". ") else "_" for part in refused.sub("_", stem[:_READABLE]).split("/")]
    plain[0] = re.sub(r"^\.\.", "__", plain[0])
    short = "/".join(_cut(part) for part in plain).strip()
    return f"{short}-x{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}{ending}"


def _cut(part: str) -> str:
    return part.encode()[: _LONGEST_PART - 30].decode(errors="ignore")


# Entities


def metric(
    name: str,
    number: float | None,
    time_ms: int,
    step: int = 0,
    model_id: str = "",
    dataset: tuple[str, str] | None = None,
) -> Any:
    """A point of a metric. Values that are not finite become NaN, because MLflow would store infinity as 1.8e308.

    With `model_id`, the point also belongs to this logged model; `dataset` has name and digest of its data.
    """
    from mlflow.entities import Metric

    finite = number if number is not None and math.isfinite(number) else math.nan
    return Metric(key(name), finite, time_ms, step, model_id or None, *(dataset or ()))


def log_metrics(
    client: Any,
    run_id: str,
    points: Sequence[Point],
    model_id: str = "",
    dataset: tuple[str, str] | None = None,
) -> None:
    """Log points of metrics in calls of a size that a server accepts, and the original names of replaced names.

    `model_id` and `dataset` are those of `metric`.
    """
    for batch in _batches([(metric(*point, model_id, dataset), len(point[0])) for point in points], _METRICS):
        client.log_batch(run_id, metrics=batch)
    log_true_names(client, run_id, (name for name, *_ in points))


def log_params(client: Any, run_id: str, params: Iterable[tuple[str, str]]) -> None:
    """Log parameters, in the same way as `log_metrics`."""
    log_values(client, run_id, (), params)


def log_values(client: Any, run_id: str, points: Sequence[Point], params: Iterable[tuple[str, str]]) -> None:
    """Log points of metrics and parameters, in the same way as `log_metrics`.

    One call has both, because each call takes the time of a slow server.
    """
    from mlflow.entities import Param

    values = {name: value(text) for name, text in params}
    metrics = _batches([(metric(*point), len(point[0])) for point in points], _METRICS)
    others = _batches([(Param(key(name), text), _size(text)) for name, text in values.items()], _OTHERS)
    for one, other in zip_longest(metrics, others, fillvalue=()):
        client.log_batch(run_id, metrics=one, params=other)
    log_true_names(client, run_id, (*(name for name, *_ in points), *values))


def log_tags(client: Any, run_id: str, tags: Iterable[tuple[str, object]]) -> None:
    """Log tags, in the same way as `log_metrics`. An empty tag is not logged; an earlier value of it is deleted."""
    values = {name: value(str(text)) for name, text in tags}
    filled = {name: text for name, text in values.items() if text}
    if len(filled) < len(values):
        before = client.get_run(run_id).data.tags
        for name in {_tag(name) for name in values.keys() - filled.keys()} & before.keys():
            client.delete_tag(run_id, name)
    if filled:
        _log_tags(client, run_id, filled | _true_names(filled))


def log_true_names(client: Any, run_id: str, names: Iterable[str]) -> None:
    """Log as tags the original names of those `names` that were replaced."""
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
    """Groups of entities for one call each, limited by number and by size."""
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
