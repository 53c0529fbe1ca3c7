"""The state of a run between two steps, and how a pretraining ends. This module does not import torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Sums = Mapping[str, Mapping[str, float]]
"""Sums by kind of loss and by name; `targets` is the number of targets."""


@dataclass(frozen=True)
class State:
    """The state in a checkpoint, in addition to weights and optimizer states. The position in the data is the step."""

    step: int = 0  # completed updates, including skipped ones
    tokens: int = 0  # tokens read by all workers, without padding
    skipped: int = 0  # skipped updates: their gradient was not finite, or their batches are in skip_steps
    skipped_in_row: int = 0
    sums: Sums = field(default_factory=dict)  # sums of the updates since the last log
    loss: float = math.nan  # last logged training loss
    evaluation: dict[str, float] = field(default_factory=dict)  # metrics of the last evaluation
    skip_steps: tuple[
        int, ...
    ] = ()  # steps whose batches are skipped, counted from 1: from the cluster file, and after spikes
    recent_losses: tuple[float, ...] = ()  # losses of the last updates, for spikes; empty if the policy is off
    recent_norms: tuple[float, ...] = ()
    best: dict[str, float] = field(default_factory=dict)  # best evaluation; {} if the run does not track it (best.py)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "State":
        """The state from the JSON in a checkpoint."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()
        }
        return cls(**values)


@dataclass(frozen=True)
class TrainingResult:
    """How a pretraining ended."""

    finished: bool  # after the last step, or early; False: training stopped on request, after a checkpoint
    state: State
