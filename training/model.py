"""A trunk, its heads, how they start, and which of their tensors decay."""

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from preprocessing.errors import MiscountedWeights
from preprocessing.spec import key, require, spec
from training.architectures import (
    ONLY,
    WHOLE,
    Backbone,
    FusedModule,
    PipelineStage,
    Share,
    StageInputs,
    cut_net,
    cut_stages,
    sinusoids_at,
)
from training.architectures import build as build_net
from training.losses import Loss, MaskedTokens, check_losses
from training.optimizers import Decays
from training.score import Score
from training.specs import Architecture, Init


@spec
class ModelSpec:
    """Configuration of a model, as `export.save_weights` writes it beside the weights."""

    model: Architecture = key(doc="Model.")
    losses: tuple[Loss, ...] = key(doc="Losses, one head each.")
    vocab_size: int = key(doc="Rows of the token table; may exceed the tokenizer's size.")

    def __post_init__(self) -> None:
        check_losses(self.model, self.losses)
        require(self.vocab_size >= 1, "vocab_size", self.vocab_size, "a whole number from 1 up")


class Model(nn.Module):
    """A trunk and one head per loss; the token table belongs to the trunk and is lent to the heads.

    `Model(...)` under `torch.device("meta")` has shapes but no memory, until `materialise` makes its weights, one after
    the other; those in `given`, by name, begin as they are there, and all as NaN where a checkpoint is to replace them
    (`replaced`). With a `share` it is what a worker has of the net; each tensor begins as that of the whole one
    (Net.cuts says what is here of those that are split). With a `stage` it has the layers of that one alone.
    """

    def __init__(
        self,
        trunk: Architecture,
        losses: tuple[Loss, ...],
        vocab_size: int,
        seed: int,
        share: Share = WHOLE,
        stage: PipelineStage = ONLY,
    ) -> None:
        super().__init__()
        self.spec = ModelSpec(model=trunk, losses=tuple(losses), vocab_size=vocab_size)
        device = torch.get_default_device()
        with torch.device("meta"):  # torch's constructors would fill the tensors from the global generator first
            self.trunk = build(trunk, vocab_size)
            self.heads = nn.ModuleDict({loss.head_name: loss.head(trunk, vocab_size) for loss in self.spec.losses})
        _check_weights(self)
        # of all weights, also where this worker has a part of one, or none
        self.whole_shapes = {name: tuple(weight.shape) for name, weight in self.named_parameters()}
        self.stage, self.stages = stage, dict.fromkeys(self.whole_shapes, 0)  # of each weight
        if stage.of > 1:
            self._leave_stage(stage)
        if share.of > 1:
            self.trunk.cuts = cut_net(self, share)
        self.seed, self.given, self.replaced = seed, dict[str, Callable[[], Tensor]](), False
        if device.type != "meta":
            self.to_empty(device=device)
            initialize(self, trunk, seed)

    def _leave_stage(self, stage: PipelineStage) -> None:
        """Leave what this stage has."""
        owners = {f"trunk.{name}": owner for name, owner in self.trunk.owners(stage.of).items()}
        owners |= {f"heads.{name}": stage.of - 1 for name in self.heads}
        self.trunk.stage = stage
        self.stages = cut_stages(self, owners, stage)

    def forward(self, batch: Mapping[str, Tensor], given: StageInputs | None = None) -> dict[str, Score] | Tensor:
        """Score of each loss, by its kind; of a stage but the last one, the states that it passes on."""
        if given is None:
            return self.trunk.scores(batch, self.heads, self.spec.losses)
        states = self.trunk.passed_on(batch, given)
        if not self.stage.is_last:
            return states
        return {loss.kind: self.heads[loss.head_name](states, batch, given.table) for loss in self.spec.losses}

    @property
    def num_parameters(self) -> int:
        """Number of weights; the tied table counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


def _check_weights(model: Model) -> None:
    """Raise MiscountedWeights where a part has another number of weights than it states."""
    spec = model.spec
    stated: list[tuple[str, object, nn.Module, int]]
    stated = [("trunk", spec.model, model.trunk, spec.model.weights(spec.vocab_size).total)]
    for loss in spec.losses:
        weights = loss.weights(spec.model, spec.vocab_size)
        stated.append((f"loss {loss.kind}", loss, model.heads[loss.head_name], weights))
    for name, part, module, weights in stated:
        found = sum(parameter.numel() for parameter in module.parameters())
        if found != weights:
            raise MiscountedWeights(
                f"{inspect.getfile(type(part))}: {name} states {weights:,} weights, what it makes has {found:,}; "
                "mend `weights` there"
            )


def build(trunk: Architecture, vocab_size: int) -> Backbone:
    """The net of a trunk, with so many rows of its token table."""
    return build_net(trunk, vocab_size, MaskedTokens().head)


@torch.no_grad()
def initialize(model: nn.Module, trunk: Architecture, seed: int) -> None:
    """Matrices and tables as the net says for their name (Net.init, Net.std), biases 0, norm gains 1.

    Each parameter has a generator of its own, from the seed and its name: one more head leaves the others as they were.
    A position table may have a deviation of its own, as in GPT-2, or begin with the sinusoids of arXiv:1706.03762, 3.5,
    of the same variance as the rest: neighbours are then alike from the start, which a short run would spend most of
    its steps on learning. Of a tensor that is cut the whole one is drawn.
    """
    first = _First(net_of(model), trunk, shapes_of(model), seed)
    for prefix, module in model.named_modules():
        for name, tensor in module.named_parameters(prefix, recurse=False):
            if cut := first.net.cuts.get(name):
                value = torch.empty(cut.shape, dtype=tensor.dtype, device=tensor.device)
                first.fill(name, module, value)
                tensor.copy_(cut.of(value))
            else:
                first.fill(name, module, tensor)


@dataclass(frozen=True)
class ReplicaGroup:
    """Workers that have the same of a net. Each draws some of its weights, and `passed` gives them to the others.

    All of them call `passed` with a tensor of one shape, and the number of the one whose tensor has the values.
    """

    number: int = 0  # of this worker
    of: int = 1
    passed: Callable[[Tensor, int], Tensor] = lambda value, owner: value
    device: torch.device | str = "cpu"  # where they receive


ALONE = ReplicaGroup()


@torch.no_grad()
def materialize(model: Model, settle: Callable[[Tensor], nn.Parameter], peers: ReplicaGroup = ALONE) -> None:
    """Make the weights of a model on the meta device, equal to those that it has elsewhere; at most two are held whole.

    `settle` takes each of them, float32, and makes the parameter of it: it may cast, move or partition it. Of a tensor
    that is cut it takes what this worker has. The weights of GPT-3 are half an hour of drawing for one core, which a
    `peers` divides.
    """
    trunk = model.spec.model
    first = _First(net_of(model), trunk, shapes_of(model), model.seed)
    places = [
        (module, name, empty)
        for prefix, module in model.named_modules()
        for name, empty in list(module.named_parameters(prefix, recurse=False))
    ]

    def drawn(module: nn.Module, name: str, empty: Tensor) -> Tensor:
        cut = first.net.cuts.get(name)
        if name in model.given:
            value = model.given[name]().float().contiguous()
        else:
            value = torch.empty(cut.shape if cut else empty.shape, dtype=torch.float32, device="cpu")
            first.fill(name, module, value)
        return cut.of(value).contiguous() if cut else value

    own: Tensor | None = None
    for at, (module, name, empty) in enumerate(places):
        owner = at % peers.of
        if model.replaced:
            value = torch.full(empty.shape, math.nan, device="cpu")
        else:
            if owner == 0 and at + peers.number < len(places):  # all draw the next one of theirs at the same time
                own = drawn(*places[at + peers.number])
            if owner == peers.number and own is not None:
                value, own = own, None
            else:
                value = torch.empty(empty.shape, dtype=torch.float32, device=peers.device)
            value = peers.passed(value, owner)
        parameter = settle(value)
        del value
        parameter.requires_grad_(empty.requires_grad)
        module.register_parameter(name.rpartition(".")[2], parameter)
    model.given = {}


@dataclass(frozen=True)
class _First:
    """What the weights of a net begin with."""

    net: Backbone
    trunk: Architecture
    shapes: Mapping[str, list[tuple[int, ...]]]  # by name, of the tensors in each
    seed: int

    def fill(self, name: str, module: nn.Module, tensor: Tensor) -> None:
        """Give the parameter `name` of `module` its first value, in `tensor`."""
        net, trunk = self.net, self.trunk
        init, generator = net.init(name), _generator(f"{self.seed} {name}")
        own_std = trunk.position_embedding.init_std if name.endswith("positions.weight") else 0.0
        std = own_std or net.std(name)
        if isinstance(module, nn.LayerNorm | nn.RMSNorm) and name.endswith("weight"):
            tensor.normal_(1.0, net.gain_std, generator=generator) if net.gain_std else tensor.fill_(1.0)
        elif tensor.ndim == 1 and (init != "pytorch_default" or isinstance(module, nn.LayerNorm)):
            tensor.zero_()
        elif tensor.ndim == 1:
            bound = _inputs(module, trunk) ** -0.5
            tensor.uniform_(-bound, bound, generator=generator)
        elif name.endswith("positions.weight") and trunk.position_embedding.init_method == "sinusoidal":
            at = torch.arange(len(tensor), device=tensor.device)
            tensor.copy_(sinusoids_at(at, tensor.shape[1]) * math.sqrt(2) * trunk.init_std)
        elif init in ("pytorch_default", "xavier") and not own_std:
            _draw_by_size(tensor, init, module, len(self.shapes[name]), generator)
        elif init == "truncated_normal":
            nn.init.trunc_normal_(tensor, 0.0, std, -2 * std, 2 * std, generator=generator)
        else:
            tensor.normal_(0.0, std, generator=generator)


def _generator(address: str) -> torch.Generator:
    """A generator that begins at the address."""
    digest = hashlib.sha256(address.encode()).digest()[:4]  # torch's generator reads 32 bits
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def _inputs(module: nn.Module, trunk: Architecture) -> int:
    """Inputs of a linear, or of the tied table, whose bias a head has."""
    return module.in_features if isinstance(module, nn.Linear) else trunk.table_width


def _draw_by_size(tensor: Tensor, init: Init, module: nn.Module, count: int, generator: torch.Generator) -> None:
    """Fill a linear, or `count` of one size that are fused, or a table, by its sizes."""
    outputs, inputs = len(tensor) // count, tensor.shape[1]
    if isinstance(module, nn.Linear):
        bound = inputs**-0.5 if init == "pytorch_default" else math.sqrt(6 / (inputs + outputs))
        tensor.uniform_(-bound, bound, generator=generator)
    else:
        tensor.normal_(0.0, tensor.shape[1] ** -0.5, generator=generator)


def net_of(model: nn.Module) -> Backbone:
    """The net of a model or of a classifier, which is its `model`."""
    net = model.trunk
    assert isinstance(net, Backbone)
    return net


def parameter_groups(model: nn.Module, decay: float, decays: Decays = "matrices") -> list[dict[str, Any]]:
    """Two groups for an optimiser: what decays, matrices and tables or `all`, and what does not.

    What is frozen does not: it never has a gradient, so that it stays; ZeRO wants the optimiser to have it anyway.
    `shapes` has for each parameter the shapes of the tensors in it, `hidden` whether it is the matrix of a linear
    between the tables and the heads, `slices` how each of the tensors is cut (Net.cuts), nothing where it is not.
    """
    frozen = tuple(f"trunk.{name}." for name in net_of(model).frozen_modules)
    shapes = shapes_of(model)
    linears = {id(module.weight) for module in net_of(model).modules() if isinstance(module, nn.Linear)}
    cuts = net_of(model).cuts
    decaying: dict[str, Any] = {"params": [], "weight_decay": decay, "shapes": [], "hidden": [], "slices": []}
    constant: dict[str, Any] = {"params": [], "weight_decay": 0.0, "shapes": [], "hidden": [], "slices": []}
    for name, parameter in model.named_parameters():
        does = (decays == "all" or len(shapes[name][0]) > 1) and not name.startswith(frozen)
        group = decaying if does else constant
        group["params"].append(parameter)
        group["shapes"].append(shapes[name])
        group["hidden"].append(id(parameter) in linears)
        group["slices"].append(cuts[name].each() if name in cuts else [])
    return [decaying, constant]


def shapes_of(model: nn.Module) -> dict[str, list[tuple[int, ...]]]:
    """By the name of each parameter, the shapes of the tensors in it: of one, or of several that are fused."""
    shapes = {}
    for prefix, module in model.named_modules():
        fused = module.fused() if isinstance(module, FusedModule) else {}
        for name, parameter in module.named_parameters(prefix, recurse=False):
            length, *others = getattr(parameter, "ds_shape", parameter.shape)  # of one that ZeRO-3 has partitioned
            lengths = fused.get(name.rpartition(".")[2], (length,))
            assert sum(lengths) == length, f"{name} has {length} rows, its tensors have {lengths}"
            shapes[name] = [(each, *others) for each in lengths]
    return shapes
