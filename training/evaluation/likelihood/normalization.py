"""Normalization of log-probabilities, to compare choices of different lengths. All values are in nats."""

from typing import Final, Literal, get_args

from training.evaluation.likelihood.requests import LogP

Normalise = Literal["sum", "token", "character", "byte", "unconditional"]
"""How to normalize the log-probability of a choice.

sum: unchanged. token: per token (GPT-3, 2.4). character, byte: per character or byte of the choice, without its
leading blank (lm-eval's `acc_norm`, `acc_bytes`). unconditional: minus the log-probability after a fixed context,
"Answer:" or an empty one (GPT-3, 2.4; lm-eval's `acc_mutual_info`).
"""

NORMALISATIONS: Final = get_args(Normalise)


def normalize(given: LogP, how: Normalise, option: str, alone: LogP | None = None) -> float:
    """Return the normalized log-probability of the text `option`; `alone` is its log-probability after the fixed
    context.

    >>> normalize(LogP(-6.0, 3, False), "token", "a cat"), normalize(LogP(-6.0, 3, False), "character", " cat")
    (-2.0, -2.0)
    """
    match how:
        case "sum":
            return given.nats
        case "token":
            return given.nats / max(1, given.tokens)
        case "character":
            return given.nats / max(1, len(option.strip()))
        case "byte":
            return given.nats / max(1, len(option.strip().encode()))
        case "unconditional":
            assert alone is not None, "unconditional normalization needs the log-probability after the fixed context"
            return given.nats - alone.nats
