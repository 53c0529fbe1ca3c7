"""Hyperparameters of fine-tuning, as papers state them. This module does not import torch."""

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from preprocessing.errors import BadInput
from preprocessing.spec import require, spec
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
FOUR: Final = 4  # concatenated layers of last_four


@spec
class Tuning:
    """One cell of a grid (BERT A.3): AdamW with a linear warm-up, then linear to 0, or what the keys say."""

    optimizer: Optimizer = "adamw"
    learning_rate: float = 2e-5  # learning rate
    batch_size: int = 32  # examples: rows, or questions with all of their options
    epochs: float = 3.0
    max_steps: int = 0  # in place of epochs, where it is not 0
    warmup_ratio: float = 0.1  # share of the steps
    lr_schedule: Schedule = "linear_after_warmup"
    min_lr_ratio: float = 0.0  # lowest rate as a share of the peak (ULMFiT: 1/32)
    weight_decay: float = 0.01
    beta2: float = 0.999  # of AdamW, as are the next two
    eps: float = 1e-6
    bias_correction: bool = True
    max_grad_norm: float = 1.0  # global norm; 0: no clipping
    layerwise_lr_decay: float = 1.0  # rate of each layer by that of the one above it (ELECTRA: .8)
    head_layer_gap: int = 2  # the head is as far above the top layer as so many layers (ELECTRA's code: 2, ULMFiT: 1)
    gradual_unfreezing: bool = False  # the head learns first, and in each epoch a layer more (ULMFiT)
    frozen_features: Features = "none"  # of a frozen trunk
    dropout: float | None = None  # of the net while it is fine-tuned; None: that of its pretraining
    lm_loss_weight: float = 0.0  # weight of the next token of each row, beside the task (GPT-1: .5)
    input_format: Form = "own"  # of a row
    both_orders: bool = False  # pairs are trained on in both orders, each an example of its own (ELECTRA's code)
    sum_orders: bool = False  # pairs are read in both orders, whose states are added before the head (GPT-1 3.3)
    no_answer_loss_weight: float = 0.0  # weight of whether a question has an answer (ELECTRA on SQuAD 2.0: .5)
    max_seq_length: int = 0  # most tokens of a row; 0: that of the task
    num_evaluations: int = 0  # on the way, the last one at the end, of which the best weights count; 0: the last ones
    init_task: str = ""  # task whose fine-tuned weights it begins with
    seed: int = 0

    def __post_init__(self) -> None:
        for name, words in (
            ("optimizer", Optimizer),
            ("lr_schedule", Schedule),
            ("frozen_features", Features),
            ("input_format", Form),
        ):
            require(getattr(self, name) in get_args(words), name, getattr(self, name), " or ".join(get_args(words)))
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "a rate above 0")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "a whole number from 1 up")
        require(self.epochs > 0, "epochs", self.epochs, "a number above 0")
        require(self.max_steps >= 0, "max_steps", self.max_steps, "a whole number from 0 up")
        require(0 <= self.warmup_ratio < 1, "warmup_ratio", self.warmup_ratio, "a fraction of the steps, below 1")
        require(0 <= self.min_lr_ratio <= 1, "min_lr_ratio", self.min_lr_ratio, "a fraction of the peak, from 0 to 1")
        require(0 < self.layerwise_lr_decay <= 1, "layerwise_lr_decay", self.layerwise_lr_decay, "above 0, at most 1")
        require(self.head_layer_gap >= 0, "head_layer_gap", self.head_layer_gap, "a whole number from 0 up")
        require(
            self.dropout is None or 0 <= self.dropout < 1,
            "dropout",
            self.dropout,
            "a fraction from 0 up to (not including) 1",
        )
        for name in ("lm_loss_weight", "no_answer_loss_weight"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "a weight from 0 up")
        require(self.num_evaluations >= 0, "num_evaluations", self.num_evaluations, "a whole number from 0 up")
        require(
            self.max_seq_length == 0 or self.max_seq_length >= 8,
            "max_seq_length",
            self.max_seq_length,
            "0, or a number of tokens from 8 up",
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
        require(self.optimizer == "adamw" or defaults, "optimizer", self.optimizer, "adamw with these beta2 and eps")

    def num_steps(self, examples: int) -> int:
        """The number of steps for this number of examples; the last batch of an epoch may be smaller.

        >>> Tuning(batch_size=32, epochs=3).num_steps(100)
        12
        """
        return self.max_steps or ceil(self.epochs * ceil(examples / self.batch_size))

    def scale(self, below: int) -> float:
        """The factor of the learning rate for parameters `below` levels below the heads.

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
