"""The metadata of an MLflow run: description, parameters, tags, files, and its corpus."""

import importlib.metadata
import json
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from orchestration.tracking import names
from orchestration.tracking.store_timeout import clear_logged, pending_updates
from preprocessing import limits
from preprocessing.manifest import Manifest

NOTE: Final = "mlflow.note.content"  # tag that the UI shows as the description, in Markdown
FOLDER: Final = "sesame.run_dir"  # tag with the URI of the run's directory
LIBRARIES: Final = (
    "apache-beam", "deepspeed", "mlflow", "numpy", "pyarrow", "ray", "safetensors", "sentencepiece", "tokenizers",
    "torch", "transformers",
)  # fmt: skip


@dataclass(frozen=True)
class Metadata:
    """The metadata of a run: nested parameters, tags, a description in Markdown, and text files by name."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, object] = field(default_factory=dict)
    note: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def run_name(label: str, folder: Path) -> str:
    """The name of a run in lists: its label, and the first four digits of the hash in its directory's name.

    >>> run_name("bert_base_tiny", Path("work/runs/bert_base_tiny-10a7c2f4"))
    'bert_base_tiny-10a7'
    >>> run_name("mine", Path("elsewhere"))
    'mine'
    """
    match = re.search(r"-([0-9a-f]{4})[0-9a-f]{4}$", folder.name)
    return f"{label}-{match[1]}" if match else label


RunMetadata = Mapping[str, Mapping[str, Any]]
"""The metadata of a run as JSON values: tags, parameters and texts by name, datasets by purpose."""


def collect_metadata(metadata: Metadata, folder: Path, corpus: Path | None = None) -> RunMetadata:
    """The complete metadata of a run, with tags of git, libraries and hardware.

    `folder` is the directory of the run. `corpus` is the directory of its dataset, or None if the corpus does not exist
    yet.
    """
    tags: dict[str, object] = {"mlflow.source.name": "sesame", FOLDER: folder.resolve().as_uri()}
    tags |= {**git_tags(), **libraries(), **hardware(), NOTE: metadata.note, **metadata.tags}
    return {
        "tags": {key: names.value(str(value)) for key, value in tags.items()},
        "texts": dict(metadata.files),
        "params": {key: names.value(value) for key, value in flatten_params(metadata.params).items()},
        "datasets": {"pretraining": _dataset(corpus)} if corpus else {},
    }


def log_metadata(client: Any, run_id: str, metadata: Metadata, folder: Path, corpus: Path | None = None) -> None:
    """Log tags and files of a run; for a new run, also its parameters and its dataset. The arguments are those of
    `collect_metadata`."""
    run = KnownRun(client, run_id)
    for kind, values in collect_metadata(metadata, folder, corpus).items():
        _log[kind](run, values)


def flush_pending_metadata(client: Any, run_id: str, folder: Path) -> None:
    """Log the metadata that is stored in the run's directory because the store did not accept it earlier."""
    run = KnownRun(client, run_id)
    for kind, log in _log.items():
        if values := pending_updates(folder).get(kind):
            log(run, values)
            clear_logged(folder, {kind: values})


@dataclass(frozen=True)
class KnownRun:
    """A run of the store. Its entry is fetched once, because a slow server takes time for each request."""

    client: Any
    run_id: str

    @cached_property
    def entry(self) -> Any:
        return self.client.get_run(self.run_id)


def _log_tags(run: KnownRun, tags: Mapping[str, str]) -> None:
    names.log_tags(run.client, run.run_id, tags.items())


def _log_texts(run: KnownRun, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        run.client.log_text(run.run_id, text, names.path(name))


def _log_params(run: KnownRun, params: Mapping[str, str]) -> None:
    """Log the parameters that the run lacks. Parameters cannot change: their hash is part of the directory's name."""
    has = run.entry.data.params
    missing = [(key, value) for key, value in params.items() if names.key(key) not in has]
    names.log_params(run.client, run.run_id, missing)


def _log_datasets(run: KnownRun, datasets: Mapping[str, Mapping[str, str]]) -> None:
    """Log datasets if the run has none; corpora do not change."""
    from mlflow.entities import Dataset

    inputs = run.entry.inputs
    if not (inputs and inputs.dataset_inputs):
        for context, dataset in datasets.items():
            log_dataset(run.client, run.run_id, Dataset(**dataset), context)


_log: Final[Mapping[str, Callable[[KnownRun, Mapping[str, Any]], None]]] = {
    "tags": _log_tags,
    "texts": _log_texts,
    "params": _log_params,
    "datasets": _log_datasets,
}


KINDS: Final = frozenset(_log)


def flatten_params(params: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values with dotted keys.

    >>> flatten_params({"optimizer": {"learning_rate": 0.1}, "phases": [{"steps": 2}]})
    {'optimizer.learning_rate': '0.1', 'phases.0.steps': '2'}

    If two keys become equal, both values are kept:

    >>> flatten_params({"a": {"b": 1}, "a.b": 2})
    {'a.b': '1', "a.b ('a.b')": '2'}
    """
    flat: dict[str, str] = {}
    for key, value in params.items():
        if isinstance(value, list | tuple):
            value = {str(index): item for index, item in enumerate(value)}
        found = (
            flatten_params(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
        )
        flat |= {f"{name} ({key!r})" if name in flat else name: one for name, one in found.items()}
    return flat


def git_tags() -> dict[str, str]:
    """The commit of this repository, and whether it has uncommitted changes; {} outside of a repository.

    Git takes no lock: `git status` would otherwise write its index, at the same time as a commit of the user. If it was
    killed then, by a full disk for example, no command of Git would work until its lock was deleted.
    """
    here = Path(__file__).parent
    try:
        commit, changes = (
            subprocess.run(
                ["git", "--no-optional-locks", *words], cwd=here, capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"mlflow.source.git.commit": commit, "git_dirty": str(bool(changes))}


def libraries() -> dict[str, str]:
    """Tags with the versions of Python and of the installed libraries that results depend on."""
    versions = {f"library.{name}": version for name in LIBRARIES if (version := _version(name))}
    return {"library.python": platform.python_version()} | versions


@cache
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # the library belongs to an extra that is not installed
        return ""


def hardware() -> dict[str, str]:
    """Tags of this machine: its name, system, processor, and the cores and GiB of memory that this process may use."""
    return {
        "host": platform.node(),
        "hardware.system": platform.platform(),
        "hardware.processor": _processor(),
        "hardware.cores": f"{limits.cores().number:g}",
        "hardware.memory_gib": f"{limits.memory().limit / 2**30:.1f}",
    }


def _processor() -> str:
    """The model name of the processor, if Linux reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def log_corpus(client: Any, run_id: str, corpus: Path, context: str) -> tuple[str, str]:
    """Log a corpus as the run's dataset, so that the UI shows the lineage from its manifest to this run. Returns name
    and digest of the dataset."""
    from mlflow.entities import Dataset

    dataset = _dataset(corpus)
    log_dataset(client, run_id, Dataset(**dataset), context)
    return dataset["name"], dataset["digest"]


def _dataset(corpus: Path) -> dict[str, str]:
    """A corpus as arguments of MLflow's class Dataset."""
    manifest = Manifest.load(corpus)
    splits = {  # as texts, because the UI cuts nested values short
        name: f"{one['rows']:,} documents, {one['tokens']:,} tokens, {one['shards']:,} shards"
        for name, one in manifest.splits.items()
    }
    return {
        "name": names.title(manifest.name),
        "digest": manifest.digest[:36],  # MLflow's limit of length; the profile has the complete digest
        "source_type": "local",
        "source": json.dumps({"uri": corpus.resolve().as_uri()}),
        "profile": json.dumps({"digest": manifest.digest, **splits}),  # the UI cuts a nested value short,
    }


def log_dataset(client: Any, run_id: str, dataset: Any, context: str) -> None:
    """Log a dataset as an input of the run.

    MLflow first looks for the dataset and then adds it. If two runs log the same dataset at once, MLflow fails for one
    of these runs. A second attempt then succeeds.
    """
    from mlflow.entities import DatasetInput, InputTag
    from mlflow.exceptions import MlflowException

    inputs = [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])]
    try:
        client.log_inputs(run_id, inputs)
    except MlflowException as error:
        if not re.search("unique|duplicate", str(error), re.IGNORECASE):
            raise
        client.log_inputs(run_id, inputs)
