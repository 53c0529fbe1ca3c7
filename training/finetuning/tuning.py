"""Hyperparameters of fine-tuning, as papers state them. This module does not import torch."""

from dataclasses import asdict, fields, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal

from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from training.optimizers import Adafactor, AdamW
from training.specs import Architecture

if TYPE_CHECKING:
    from training.finetuning.targets import Target

Optimizer = Literal["adamw", "adafactor"]
Schedule = Literal["linear_after_warmup", "constant", "slanted_triangular"]
Features = Literal["none", "last", "last_four", "scalar_mix"]
"""Inputs of the heads from a frozen trunk: the last states, the last four layers, or a learned mix of all layers.
With none, the trunk is trained too."""
Form = Literal["own", "gpt1"]
"""Input format: the template of the vocabulary (own), or Start text Delim text Extract (gpt1; GPT-1 3.3)."""
_LATER: Final = frozenset({"early_stopping_patience"})  # keys since version 0.3
FOUR: Final = 4  # number of layers that last_four concatenates


@spec
class Tuning:
    """One trial of a grid (BERT A.3).

    By default it is AdamW with linear warmup, then linear decay to 0.
    """

    optimizer: Optimizer = key(default="adamw", doc="Optimizer.")
    learning_rate: float = key(default=2e-5, doc="Peak learning rate.")
    batch_size: int = key(default=32, doc="Batch size in examples: sequences, or questions with all their choices.")
    epochs: float = key(default=3.0, doc="Number of epochs.")
    max_steps: int = key(default=0, doc="Number of steps; 0: epochs instead.")
    warmup_ratio: float = key(default=0.1, doc="Fraction of warmup steps.")
    lr_schedule: Schedule = key(default="linear_after_warmup", doc="Learning rate schedule.")
    min_lr_ratio: float = key(default=0.0, doc="Minimum learning rate as a fraction of the peak (ULMFiT: 1/32).")
    weight_decay: float = key(default=0.01, doc="Weight decay.")
    beta2: float = key(default=0.999, doc="Decay rate of the running mean of the squared gradient.")
    eps: float = key(default=1e-6, doc="Term added to the denominator of AdamW's update.")
    bias_correction: bool = key(default=True, doc="Whether AdamW's running means are corrected for their zero start.")
    max_grad_norm: float = key(default=1.0, doc="Maximum global norm of the gradient; 0: no clipping.")
    layerwise_lr_decay: float = key(
        default=1.0, doc="Factor of a layer's learning rate relative to the layer above (ELECTRA: 0.8)."
    )
    head_layer_gap: int = key(
        default=2, doc="Distance from the top layer to the head for layerwise_lr_decay (ELECTRA: 2, ULMFiT: 1)."
    )
    gradual_unfreezing: bool = key(
        default=False, doc="Whether training starts with the head and adds one layer per epoch (ULMFiT)."
    )
    frozen_features: Features = key(
        default="none", doc="Hidden states of the frozen model that feed the head; none: the model is trained."
    )
    dropout: float | None = key(default=None, doc="Dropout in fine-tuning; null: as in pretraining.")
    lm_loss_weight: float = key(default=0.0, doc="Weight of an additional language modeling loss (GPT-1: 0.5).")
    input_format: Form = key(default="own", doc="Format of a sequence.")
    both_orders: bool = key(
        default=False, doc="Whether training uses both orders of a pair, each as an example (ELECTRA's code)."
    )
    sum_orders: bool = key(
        default=False, doc="Whether the states of both orders of a pair are added before the head (GPT-1 3.3)."
    )
    no_answer_loss_weight: float = key(default=0.0, doc="Weight of the no-answer loss (ELECTRA on SQuAD 2.0: 0.5).")
    max_seq_length: int = key(default=0, doc="Maximum sequence length in tokens; 0: that of the task.")
    num_evaluations: int = key(
        default=0, doc="Number of evaluations on dev, to select the best weights; 0: final weights."
    )
    early_stopping_patience: int = key(
        default=0, doc="Evaluations without a better dev score after which training stops; 0: never."
    )
    init_task: str = key(
        default="", doc="Task whose fine-tuned weights are the initial weights; empty: pretrained weights."
    )
    seed: int = key(default=0, doc="Seed for data order, initialization and dropout.")

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "a rate above 0")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "an integer of at least 1")
        require(self.epochs > 0, "epochs", self.epochs, "a number above 0")
        require(self.max_steps >= 0, "max_steps", self.max_steps, "an integer of at least 0")
        require(0 <= self.warmup_ratio < 1, "warmup_ratio", self.warmup_ratio, "a fraction of the steps, below 1")
        require(0 <= self.min_lr_ratio <= 1, "min_lr_ratio", self.min_lr_ratio, "a fraction of the peak, from 0 to 1")
        require(0 < self.layerwise_lr_decay <= 1, "layerwise_lr_decay", self.layerwise_lr_decay, "above 0, at most 1")
        require(self.head_layer_gap >= 0, "head_layer_gap", self.head_layer_gap, "an integer of at least 0")
        require(
            self.dropout is None or 0 <= self.dropout < 1,
            "dropout",
            self.dropout,
            "a fraction of at least 0 and below 1",
        )
        for name in ("lm_loss_weight", "no_answer_loss_weight"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "a weight of at least 0")
        require(self.num_evaluations >= 0, "num_evaluations", self.num_evaluations, "an integer of at least 0")
        most = max(0, self.num_evaluations - 1)  # with as many evaluations, training cannot stop early
        require(
            0 <= self.early_stopping_patience <= most,
            "early_stopping_patience",
            self.early_stopping_patience,
            f"an integer from 0 to {most} with num_evaluations {self.num_evaluations}",
        )
        require(
            self.max_seq_length == 0 or self.max_seq_length >= 8,
            "max_seq_length",
            self.max_seq_length,
            "0, or at least 8 tokens",
        )
        self._check_consistency()

    def _check_consistency(self) -> None:
        """Raise ValueError if a key has no effect together with another key."""
        frozen = self.frozen_features != "none"
        for name, default in (
            ("layerwise_lr_decay", 1.0),
            ("gradual_unfreezing", False),
            ("lm_loss_weight", 0.0),
            ("dropout", None),
        ):
            value = getattr(self, name)
            require(
                not frozen or value == default,
                name,
                value,
                f"{default} with frozen_features {self.frozen_features!r}",
            )
        gpt1 = self.input_format == "gpt1" and not self.both_orders
        require(
            not self.sum_orders or gpt1,
            "sum_orders",
            self.sum_orders,
            "False, except with input_format gpt1 and without both_orders",
        )
        require(
            self.layerwise_lr_decay < 1 or self.head_layer_gap == 2,
            "head_layer_gap",
            self.head_layer_gap,
            "2 without layerwise_lr_decay",
        )
        defaults = (self.beta2, self.eps, self.bias_correction) == (0.999, 1e-6, True)
        require(
            self.optimizer == "adamw" or defaults,
            "optimizer",
            self.optimizer,
            "adamw, because beta2, eps or bias_correction is set",
        )

    def values(self) -> dict[str, Any]:
        """The keys and their values. Keys of later versions are left out at their default, so that the results of
        earlier versions stay valid.

        >>> "early_stopping_patience" in Tuning().values()
        False
        """
        default = {each.name: each.default for each in fields(self)}
        return {name: value for name, value in asdict(self).items() if name not in _LATER or value != default[name]}

    def num_steps(self, examples: int) -> int:
        """The number of steps for this number of examples; the last batch of an epoch may be smaller.

        >>> Tuning(batch_size=32, epochs=3).num_steps(100)
        12
        """
        return self.max_steps or ceil(self.epochs * ceil(examples / self.batch_size))

    def scale(self, below: int) -> float:
        """The factor of the learning rate for parameters that are `below` levels below the heads.

        The top layer is 2 below the heads, and the embeddings of L layers are L + 2 below (google-research/electra,
        model/optimization.py).

        >>> [round(Tuning(layerwise_lr_decay=0.8).scale(below), 3) for below in (0, 2, 3)]
        [1.0, 0.64, 0.512]
        >>> ulmfit = Tuning(layerwise_lr_decay=1 / 2.6, head_layer_gap=1)
        >>> [round(1 / ulmfit.scale(below), 3) for below in (0, 2, 3)]
        [1.0, 2.6, 6.76]
        """
        return self.layerwise_lr_decay ** (below - 2 + self.head_layer_gap) if below else 1.0

    def optim(self, steps: int) -> AdamW | Adafactor:
        """The optimizer for this number of steps. Adafactor's learning rates are relative to the weights."""
        common: dict[str, Any] = {
            "learning_rate": self.learning_rate,
            "warmup_steps": int(self.warmup_ratio * steps),
            "lr_schedule": self.lr_schedule,
            "min_lr_ratio": self.min_lr_ratio,
            "weight_decay": self.weight_decay,
            "max_grad_norm": self.max_grad_norm,
        }
        if self.optimizer == "adafactor":
            return Adafactor(**common)
        return AdamW(**common, beta2=self.beta2, eps=self.eps, bias_correction=self.bias_correction)

    def trunk(self, trunk: Architecture) -> Architecture:
        """The architecture for fine-tuning, with its dropout. Raises BadInput if the tuning does not fit the model."""
        one_way = trunk.attention_mask == "causal" and not trunk.reads_source and not trunk.cutoffs
        for name, is_set in (
            ("lm_loss_weight", self.lm_loss_weight > 0),
            ("input_format", self.input_format == "gpt1"),
        ):
            if is_set and not one_way:
                raise BadInput(
                    f"invalid tuning.{name}: got {getattr(self, name)!r}, which requires a decoder without adaptive "
                    f"softmax, but the model is: {trunk.describe()}; use another grid"
                )
        if self.dropout is None:
            return trunk
        return replace(trunk, hidden_dropout=self.dropout, attention_dropout=self.dropout)

    def targets(self, task: "tuple[Target, ...]") -> "tuple[Target, ...]":
        """The targets of the task, plus the auxiliary language modeling target if it has a weight."""
        from training.finetuning.targets import LanguageModelTarget

        return (*task, LanguageModelTarget(weight=self.lm_loss_weight)) if self.lm_loss_weight else task
