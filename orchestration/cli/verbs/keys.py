"""sesame keys"""

import dataclasses
from typing import Any

from orchestration.cli import options
from orchestration.terminal import CommandResult, print_answer


def keys(part: options.Part = "", as_json: options.Json = False) -> int:
    """List the parts of recipes, cluster files and corpus files, or show the keys of one: type, default, meaning."""
    from orchestration.config import find_keys, parts
    from orchestration.terminal import views

    found = find_keys(part) if part else list(parts())
    values: dict[str, Any] = {"parts": [dataclasses.asdict(each) for each in found]}
    if part:
        next_ = ("sesame check bert_base optimizer.learning_rate=2e-4",)
        return print_answer(CommandResult((views.keys(found),), values, next_), as_json)
    return print_answer(CommandResult((views.key_index(found),), values, ("sesame keys optimizer",)), as_json)
