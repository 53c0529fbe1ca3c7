"""The JSON files of weight directories, in our own format and of `transformers`. This module does not import torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from preprocessing.errors import BadInput
from preprocessing.files import parse_json, write_atomic
from preprocessing.renames import with_new_names
from preprocessing.spec import part
from preprocessing.stand_ins import require_itself
from training.losses import Loss
from training.model_spec import ModelSpec
from training.specs import Architecture

JSON_BYTES: Final = 16_000_000  # maximum size of a foreign JSON file


def load_spec(folder: Path) -> ModelSpec:
    """Load the spec of a directory written by `save_weights`. Raises BadInput if it is missing or of another
    version."""
    stored = read_json(folder / "spec.json")
    try:
        parts = dict(stored["spec"])
        if "trunk" in parts:  # version 0.1
            parts["model"] = with_new_names(parts.pop("trunk"), "trunk")
            parts["losses"] = [with_new_names(loss, "objective.losses") for loss in parts["losses"]]
        trunk, losses = part(Architecture, parts.pop("model")), tuple(part(Loss, loss) for loss in parts.pop("losses"))
        return ModelSpec(model=trunk, losses=losses, **parts)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder / 'spec.json'}: not a spec of this version ({error}); export the run again") from None


def read_file(path: Path) -> bytes:
    try:
        if (size := path.stat().st_size) > JSON_BYTES:
            raise BadInput(f"{path}: too large: got {size:,} bytes, expected at most {JSON_BYTES:,}; download it again")
        require_itself(path)
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give a directory with exported weights") from None


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_file(path))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error}); export again") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: not a JSON object; export again")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomic(path, (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())
