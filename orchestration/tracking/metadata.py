"""What an MLflow run says about itself: parameters, tags, the commit it was made from, the corpus it has read."""

import json
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preprocessing.manifest import Manifest


@dataclass(frozen=True)
class Metadata:
    """What a run says about itself: parameters (nested; also an artifact, `file`) and tags."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, object] = field(default_factory=dict)
    file: str = "recipe.json"


def log_metadata(client: Any, run_id: str, metadata: Metadata, corpus: Path | None = None) -> None:
    """Give a run its tags, with those of git and host; a new one also its parameters, as a file too, and its dataset.

    `corpus` is the folder of that dataset; None where it is still to be made.
    """
    from mlflow.entities import Param, RunTag

    logged = {"mlflow.source.name": "sesame", "host": platform.node(), **git_tags(), **metadata.tags}
    client.log_batch(run_id, tags=[RunTag(key, str(value)) for key, value in logged.items()])
    if client.get_run(run_id).data.params:  # resumed: parameters cannot change, and the folder's name has their hash
        return
    flat = [Param(key, value[:6000]) for key, value in flattened(metadata.params).items()]
    for start in range(0, len(flat), 100):  # MLflow's limit of parameters in one call
        client.log_batch(run_id, params=flat[start : start + 100])
    client.log_dict(run_id, dict(metadata.params), metadata.file)
    if corpus:
        log_corpus(client, run_id, corpus, "pretraining")


def flattened(params: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values as dotted keys.

    >>> flattened({"optim": {"peak": 0.1}, "phases": [{"steps": 2}]})
    {'optim.peak': '0.1', 'phases.0.steps': '2'}
    """
    flat: dict[str, str] = {}
    for key, value in params.items():
        if isinstance(value, list | tuple):
            value = {str(index): item for index, item in enumerate(value)}
        flat |= flattened(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
    return flat


def git_tags() -> dict[str, str]:
    """Commit of this checkout and whether it has changes; empty outside of one."""
    here = Path(__file__).parent
    try:
        commit, changes = (
            subprocess.run(
                ["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"mlflow.source.git.commit": commit, "git_dirty": str(bool(changes))}


def log_corpus(client: Any, run_id: str, corpus: Path, context: str) -> None:
    """The corpus as the run's dataset: lineage from its manifest to this run, in the UI's own place for it."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    manifest = Manifest.load(corpus)
    dataset = Dataset(
        name=manifest.name,
        digest=manifest.digest[:36],  # MLflow's limit; the profile has all of it
        source_type="local",
        source=json.dumps({"uri": corpus.resolve().as_uri()}),
        profile=json.dumps({"digest": manifest.digest, "splits": manifest.splits}),
    )
    client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])
