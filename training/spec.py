"""What a recipe says about the net, the losses and the optimiser. No torch in here: `sesame check` answers without it.

The modules that read these parts are next door: trunks/ (the nets, with a spec of their own), objectives.py (the
losses), optim.py and schedule.py (the optimisers), loop.py (Phase, Machine).
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from preprocessing.knob import knob, require
from training.trunks.spec import (
    Activation,
    Decoder,
    Encoder,
    EncoderDecoder,
    Norm,
    PositionInit,
    Stack,
    Trunk,
    Twin,
    TwoStream,
)

__all__ = [
    "Activation",
    "Adafactor",
    "AdamW",
    "Adversarial",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "Lamb",
    "Loss",
    "Machine",
    "MaskedTokens",
    "NextToken",
    "Norm",
    "Optim",
    "PairLabel",
    "Phase",
    "PositionInit",
    "Precision",
    "Replaced",
    "SpanBoundary",
    "Stack",
    "Trunk",
    "Twin",
    "TwoStream",
]

Precision = Literal["fp32", "bf16"]


@knob
class MaskedTokens:
    """Predict the chosen tokens: transform, tied embedding, bias (BERT 3.1, task 1)."""

    kind: Literal["masked_tokens"] = "masked_tokens"
    weight: float = 1.0
    transform: bool = True  # a linear, an activation and a norm before the table; XLM and XLNet have none
    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    visibility: ClassVar[str] = "full"


@knob
class PairLabel:
    """Two-way label of a pair from the pooled first token (BERT 3.1, task 2; ALBERT 3.1). 1 = not the next segment."""

    kind: Literal["pair_label"] = "pair_label"
    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"pair_label"})
    visibility: ClassVar[str] = "full"


@knob
class NextToken:
    """Predict each next token with the tied embedding (GPT-2 2), or what the decoder of a sequence to sequence says."""

    kind: Literal["next_token"] = "next_token"
    weight: float = 1.0
    bias: bool = False  # one for each token (XLM)
    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    visibility: ClassVar[str] = "causal"


@knob
class SpanBoundary:
    """Predict each token of a chosen span from the tokens around the span and its place in it (SpanBERT 3.2)."""

    kind: Literal["span_boundary"] = "span_boundary"
    weight: float = 1.0
    positions: int = 15  # tokens of a span that are asked, from its first
    position_width: int = 200
    needs: ClassVar[frozenset[str]] = frozenset({"labels", "hits"})
    visibility: ClassVar[str] = "full"

    def __post_init__(self) -> None:
        for name in ("positions", "position_width"):
            require(getattr(self, name) >= 1, f"losses.{name}", getattr(self, name), "a whole number from 1 up")


@knob
class Replaced:
    """Tell for each token whether the generator has put it there (ELECTRA 3.1), or what it was (3.4)."""

    kind: Literal["replaced"] = "replaced"
    weight: float = 50.0
    asks: Literal["replaced", "original"] = "replaced"
    at: Literal["all", "chosen"] = "all"  # chosen: where the generator was asked (ELECTRA 15 %, Replace MLM)
    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    visibility: ClassVar[str] = "full"


@knob
class Adversarial:
    """Fill masks with what the discriminator takes for the text's own (ELECTRA 3.2), and not with what was there."""

    kind: Literal["adversarial"] = "adversarial"
    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    visibility: ClassVar[str] = "full"


Loss = MaskedTokens | PairLabel | NextToken | SpanBoundary | Replaced | Adversarial


def check_losses(trunk: Trunk, losses: Sequence[Loss]) -> None:
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


def _check_twin(trunk: Twin, losses: Sequence[Loss]) -> None:
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


Schedule = Literal[
    "linear", "linear_product", "linear_from_peak", "polynomial", "cosine", "constant", "inverse_sqrt", "rsqrt"
]
"""linear is BERT's form: the decay runs from step 0, so the rate right after warm-up is already below the peak, and
warm-up overrides it; linear_product is ELECTRA's: warm-up multiplies it (google-research/electra, optimization.py);
linear_from_peak is fairseq's: the decay runs from the end of warm-up; polynomial the same to the third power
(Longformer); inverse_sqrt: peak * sqrt(warmup / step) after warm-up (arXiv:1706.03762, fairseq's form); rsqrt: the
same, and the peak instead of a warm-up (T5)."""


@knob
class Updates:
    """What every optimiser has; `peak` is the highest learning rate."""

    peak: float
    warmup: int = 0  # steps
    schedule: Schedule = "linear"
    floor: float = 0.0  # lowest learning rate as a share of the peak
    horizon: int = 0  # step at which the decay ends; 0: with the run
    decay: float = 0.01  # weight decay; never on norms and biases
    clip: float = 1.0  # global norm of the raw gradient; 0 = no clipping

    def __post_init__(self) -> None:
        require(0 < self.peak < 100, "optim.peak", self.peak, "a learning rate above 0 and below 100")
        require(self.warmup >= 0, "optim.warmup", self.warmup, "a number of steps from 0 up")
        late = self.horizon == 0 or self.horizon > self.warmup
        require(late, "optim.horizon", self.horizon, f"0, or a step after the warm-up of {self.warmup:,}")
        require(0 <= self.floor <= 1, "optim.floor", self.floor, "a share from 0 to 1")
        require(0 <= self.decay < 1, "optim.decay", self.decay, "a number from 0 up to 1")
        require(self.clip >= 0, "optim.clip", self.clip, "a norm from 0 (off) up")


@knob
class Moments(Updates):
    """What optimisers have that follow the mean of the gradient and of its square."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6

    def __post_init__(self) -> None:
        Updates.__post_init__(self)
        require(0 <= self.beta1 < 1, "optim.beta1", self.beta1, "a number from 0 up to 1")
        require(0 <= self.beta2 < 1, "optim.beta2", self.beta2, "a number from 0 up to 1")
        require(self.eps > 0, "optim.eps", self.eps, "a positive number")


@knob
class AdamW(Moments):
    """Adam with decoupled weight decay (arXiv:1711.05101)."""

    kind: Literal["adamw"] = "adamw"
    bias_correction: bool = True  # the reference BERT has none


@knob
class Lamb(Moments):
    """Adam whose update of each tensor is as long as its weights (arXiv:1904.00962), as the reference ALBERT has it:
    no bias correction, and tensors that do not decay do not scale either."""

    kind: Literal["lamb"] = "lamb"


@knob
class Adafactor(Updates):
    """Second moments by rows and columns, no first moment, updates clipped, rates relative to the weights
    (arXiv:1804.04235), as T5 has it, whose rate is 1 / sqrt(max(step, 10,000)). Grover's rates are not relative."""

    kind: Literal["adafactor"] = "adafactor"
    peak: float = 0.01
    warmup: int = 10_000
    schedule: Schedule = "rsqrt"
    decay: float = 0.0
    clip: float = 0.0
    relative: bool = True
    square_decay: float = 0.0  # what is kept of the squares at each step; 0: 1 - step^-0.8

    def __post_init__(self) -> None:
        Updates.__post_init__(self)
        require(0 <= self.square_decay < 1, "optim.square_decay", self.square_decay, "a number from 0 up to 1")


Optim = AdamW | Lamb | Adafactor


@knob
class Phase:
    """A stretch of training: `steps` batches of `batch` rows of at most `length` tokens (BERT A.2: 128, then 512).

    `fill` tokens: as many rows as it takes to have the text of so many full ones (RoBERTa 4.2, DOC-SENTENCES).
    """

    length: int  # tokens, special tokens included
    batch: int  # rows in a global batch, over all workers and micro-batches
    steps: int
    fill: Literal["rows", "tokens"] = "rows"

    def __post_init__(self) -> None:
        require(self.length >= 8, "phases.length", self.length, "a number of tokens from 8 up")
        require(self.batch >= 1, "phases.batch", self.batch, "a number of rows from 1 up")
        require(self.steps >= 1, "phases.steps", self.steps, "a number of steps from 1 up")


@knob
class Machine:
    """Circumstance: how one worker runs. Comes from the cluster file; never changes what is learned."""

    device: Literal["cpu", "cuda"] = "cpu"
    precision: Precision = "fp32"
    zero: Literal[0, 1, 2, 3] = 2
    micro_tokens: int = 16_384  # tokens of a micro-batch per worker; rows = micro_tokens // length
    layout: Literal["padded", "unpadded"] = "unpadded"
    threads: int = 1  # torch threads per worker
    loader_workers: int = 0  # processes that prepare batches ahead, per worker; 0 = in the training process
    compile: bool = False
    persistence_threshold: int = 100_000  # ZeRO-3: tensors below this many elements stay whole; 0 in parity tests

    def __post_init__(self) -> None:
        require(self.micro_tokens >= 1, "micro_tokens", self.micro_tokens, "a number of tokens from 1 up")
        require(self.threads >= 1, "threads", self.threads, "a number from 1 up")
        require(self.loader_workers >= 0, "loader_workers", self.loader_workers, "a number from 0 up")
        require(
            not (self.zero == 0 and self.precision == "bf16"),
            "zero",
            self.zero,
            "1, 2 or 3 with bf16 (DeepSpeed's stage 0 takes a dummy Adam step in 16 bit)",
        )
