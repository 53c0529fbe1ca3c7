"""Which losses fit which trunk."""

from collections.abc import Sequence
from typing import Any

from preprocessing.spec import require
from training.losses.masked_tokens import MaskedTokens
from training.losses.replaced import Replaced
from training.specs import Trunk, Twin


def check_losses(trunk: Trunk, losses: Sequence[Any]) -> None:
    """Raise ValueError, in one line, where these losses cannot be asked of this trunk."""
    kinds = [loss.kind for loss in losses]
    require(len(set(kinds)) == len(kinds) > 0, "losses", kinds, "one or more kinds, each once")
    if isinstance(trunk, Twin):
        _check_twin(trunk, losses)
    else:
        require("adversarial" not in kinds, "losses", kinds, "adversarial with a twin")
    factorised = trunk.table_width != (trunk.generator_net if isinstance(trunk, Twin) else trunk).width
    bare = any(isinstance(loss, MaskedTokens) and not loss.transform for loss in losses)
    require(not (factorised and bare), "losses.transform", False, "true where the tables are not as wide as the blocks")


def _check_twin(trunk: Twin, losses: Sequence[Any]) -> None:
    """Raise ValueError, in one line, where these losses are not those of both nets."""
    kinds = sorted(loss.kind for loss in losses)
    if kinds == ["adversarial", "replaced"]:
        plain = trunk.samples == "generator" and trunk.allow_correct and trunk.shared == "embeddings"
        asks = any(isinstance(loss, Replaced) and loss.asks == "replaced" for loss in losses)
        allowed = "adversarial with samples: generator, allow_correct, shared: embeddings and replaced asked"
        require(plain and asks, "losses", kinds, allowed)
        return
    wanted = ["masked_tokens", "replaced"] if trunk.samples == "generator" else ["replaced"]
    require(kinds == wanted, "losses", kinds, f"{wanted} with a twin whose samples: {trunk.samples}")
