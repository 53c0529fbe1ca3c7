"""What a recipe says about the net, the losses and the optimiser. No torch in here: `sesame check` answers without it.

The modules that read these parts are next door: trunks/transformer.py (Encoder, Decoder), objectives.py (MaskedTokens,
PairLabel, NextToken), optim.py (AdamW), loop.py (Phase, Machine).
"""

from typing import ClassVar, Literal

from preprocessing.knob import knob, require

Norm = Literal["pre", "post"]
Activation = Literal["gelu", "gelu_tanh", "relu"]
PositionInit = Literal["normal", "sinusoidal"]
Precision = Literal["fp32", "bf16"]


def _check_trunk(trunk: "Encoder | Decoder") -> None:
    for name in ("layers", "width", "heads", "max_positions"):
        require(getattr(trunk, name) >= 1, f"trunk.{name}", getattr(trunk, name), "a whole number from 1 up")
    require(trunk.width % trunk.heads == 0, "trunk.heads", trunk.heads, f"a divisor of width {trunk.width}")
    for name in ("dropout", "attention_dropout"):
        require(0 <= getattr(trunk, name) < 1, f"trunk.{name}", getattr(trunk, name), "a share from 0 up to 1")
    require(trunk.init_std > 0, "trunk.init_std", trunk.init_std, "a positive number")


@knob
class Encoder:
    """A bidirectional transformer: BERT (arXiv:1810.04805), RoBERTa (arXiv:1907.11692)."""

    kind: Literal["encoder"] = "encoder"
    layers: int
    width: int
    heads: int
    inner: int = 0  # width of the feed-forward layer; 0 means 4 x width, as in every published size
    norm: Norm = "post"
    norm_eps: float = 1e-12
    positions: Literal["learned"] = "learned"
    position_init: PositionInit = "normal"  # what the learned table begins with
    max_positions: int = 512  # rows of the position table, offset included: RoBERTa has 514
    position_offset: int = 0  # RoBERTa starts at padding index + 1 = 2
    segments: int = 2  # rows of the token-type table
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    init_std: float = 0.02

    visibility: ClassVar[str] = "full"

    def __post_init__(self) -> None:
        _check_trunk(self)

    @property
    def inner_width(self) -> int:
        return self.inner or 4 * self.width

    @property
    def longest(self) -> int:
        """Longest row, in tokens, that has a position of its own."""
        return self.max_positions - self.position_offset


@knob
class Decoder:
    """A causal transformer, GPT-2 (Radford 2019): pre-norm, final norm, residual projections by 1 / sqrt(2 L)."""

    kind: Literal["decoder"] = "decoder"
    layers: int
    width: int
    heads: int
    inner: int = 0
    norm: Norm = "pre"
    norm_eps: float = 1e-5
    positions: Literal["learned"] = "learned"
    position_init: PositionInit = "normal"  # what the learned table begins with
    max_positions: int = 1024
    activation: Activation = "gelu_tanh"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    init_std: float = 0.02

    visibility: ClassVar[str] = "causal"
    position_offset: ClassVar[int] = 0
    segments: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check_trunk(self)

    @property
    def inner_width(self) -> int:
        return self.inner or 4 * self.width

    @property
    def longest(self) -> int:
        return self.max_positions


Trunk = Encoder | Decoder


@knob
class MaskedTokens:
    """Predict the chosen tokens: transform, tied embedding, bias (BERT 3.1, task 1)."""

    kind: Literal["masked_tokens"] = "masked_tokens"
    weight: float = 1.0
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
    """Predict each next token with the tied embedding, without bias (GPT-2 2)."""

    kind: Literal["next_token"] = "next_token"
    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    visibility: ClassVar[str] = "causal"


Loss = MaskedTokens | PairLabel | NextToken


@knob
class AdamW:
    """Adam with decoupled weight decay (arXiv:1711.05101), warm-up and a schedule; `peak` is the highest learning rate.

    `linear` is BERT's form: the decay runs from step 0, so the rate right after warm-up is already below the peak.
    `linear_from_peak` is fairseq's: the decay runs from the end of warm-up.
    """

    kind: Literal["adamw"] = "adamw"
    peak: float
    warmup: int = 0  # steps
    schedule: Literal["linear", "linear_from_peak", "cosine", "constant"] = "linear"
    floor: float = 0.0  # lowest learning rate as a share of the peak
    decay: float = 0.01  # weight decay; never on norms and biases
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    clip: float = 1.0  # global norm of the raw gradient; 0 = no clipping
    bias_correction: bool = True  # the reference BERT has none

    def __post_init__(self) -> None:
        require(0 < self.peak < 100, "optim.peak", self.peak, "a learning rate above 0 and below 100")
        require(self.warmup >= 0, "optim.warmup", self.warmup, "a number of steps from 0 up")
        require(0 <= self.floor <= 1, "optim.floor", self.floor, "a share from 0 to 1")
        require(0 <= self.decay < 1, "optim.decay", self.decay, "a number from 0 up to 1")
        require(0 <= self.beta1 < 1, "optim.beta1", self.beta1, "a number from 0 up to 1")
        require(0 <= self.beta2 < 1, "optim.beta2", self.beta2, "a number from 0 up to 1")
        require(self.eps > 0, "optim.eps", self.eps, "a positive number")
        require(self.clip >= 0, "optim.clip", self.clip, "a norm from 0 (off) up")


Optim = AdamW


@knob
class Phase:
    """A stretch of training: `steps` batches of `batch` rows of at most `length` tokens (BERT A.2: 128, then 512)."""

    length: int  # tokens, special tokens included
    batch: int  # rows in a global batch, over all workers and micro-batches
    steps: int

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
