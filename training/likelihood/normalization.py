"""Log-probabilities of options of different lengths made comparable. All are in nats."""

from typing import Final, Literal, get_args

from training.likelihood.requests import LogP

Normalise = Literal["sum", "token", "character", "byte", "unconditional"]
"""How a log-probability is compared with those of other options.

sum: as it is. token: by its tokens (GPT-3, 2.4). character, byte: by those of the option, without the blank before it
(lm-eval's `acc_norm`, `acc_bytes`). unconditional: less that of the option behind a fixed context, "Answer:" or nothing
(GPT-3, 2.4; lm-eval's `acc_mutual_info`).
"""

NORMALISATIONS: Final = get_args(Normalise)


def normalize(given: LogP, how: Normalise, option: str, alone: LogP | None = None) -> float:
    """The log-probability of the text `option`, normalised; `alone` is its own behind the fixed context.

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
            assert alone is not None, "the option has to be scored behind the fixed context as well"
            return given.nats - alone.nats
