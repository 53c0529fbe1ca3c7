"""A model and its heads, their initialization, and their parameter groups for the optimizer."""

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from preprocessing.errors import MiscountedWeights
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
from training.losses import LogitsFor, Loss, plain_loss
from training.losses.heads import AdaptiveHead, TokenHead, build_head
from training.model_spec import ModelSpec
from training.optimizers import Decays
from training.score import Score
from training.specs import Architecture, Init


class Model(nn.Module):
    """A trunk and one head per loss. The token table belongs to the trunk; the heads get it as an argument.

    Under `torch.device("meta")`, `Model(...)` has shapes but no memory, until `materialize` creates the weights one by
    one. `given` maps names of weights to functions that return their initial values. If a checkpoint will replace all
    weights (`replaced`), they start as NaN.

    With a `share`, the model has the part of one tensor-parallel worker, with the initial values of the full tensors;
    `Backbone.cuts` describes the parts. With a `stage`, it has the layers of this pipeline stage only.
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
        with torch.device("meta"):  # otherwise torch's constructors would use the global generator
            self.trunk = build(trunk, vocab_size)
            _check_tensors(self.trunk, trunk, vocab_size)
            self.heads = nn.ModuleDict(
                {loss.head_name: build_head(loss, trunk, vocab_size) for loss in self.spec.losses}
            )
        # full shapes of all weights, even if this worker has only a part or none of them
        self.whole_shapes = {name: tuple(weight.shape) for name, weight in self.named_parameters()}
        self.stage, self.stages = stage, dict.fromkeys(self.whole_shapes, 0)  # stage of each weight
        if stage.of > 1:
            self._keep_stage(stage)
        if share.of > 1:
            self.trunk.cuts = cut_net(self, share)
        self.seed, self.given, self.replaced = seed, dict[str, Callable[[], Tensor]](), False
        if device.type != "meta":
            allocate(self, device)
            initialize(self, trunk, seed)

    def _keep_stage(self, stage: PipelineStage) -> None:
        """Remove the modules that other stages have."""
        owners = {f"trunk.{name}": owner for name, owner in self.trunk.owners(stage.of).items()}
        owners |= {f"heads.{name}": stage.of - 1 for name in self.heads}
        self.trunk.stage = stage
        self.stages = cut_stages(self, owners, stage)

    def forward(self, batch: Mapping[str, Tensor], given: StageInputs | None = None) -> dict[str, Score] | Tensor:
        """Score of each loss, by kind. A stage before the last one returns the states for the next stage."""
        if given is None:
            return self.trunk.scores(batch, self.heads, self.spec.losses)
        states = self.trunk.run_stage(batch, given)
        if not self.stage.is_last:
            return states
        table = self.trunk.table if given.table is None else given.table
        return {loss.kind: self.heads[loss.head_name](states, batch, table) for loss in self.spec.losses}

    def head_for(self, logits_for: LogitsFor) -> TokenHead | AdaptiveHead | None:
        """The head that predicts tokens in this way; None if no loss of the model has one.

        A model that predicts in any order (XLNet) predicts next tokens with its head for masked tokens.
        """
        if logits_for == "causal" and self.spec.model.hides_own_token:
            logits_for = "masked"
        names = (loss.head_name for loss in self.spec.losses if loss.logits_for == logits_for)
        return next((self.heads[name] for name in names), None)  # type: ignore[return-value]  # a module of this kind

    @property
    def num_parameters(self) -> int:
        """Number of weights; the tied table counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


def _check_tensors(module: Backbone, trunk: Architecture, vocab_size: int) -> None:
    """Raise MiscountedWeights if the tensors of a module are not those that its architecture declares."""
    declared = {one.name: one.shape for one in trunk.tensors(vocab_size).parameters()}
    actual = {name: tuple(weight.shape) for name, weight in module.named_parameters()}
    if different := sorted(name for name, _ in declared.items() ^ actual.items()):
        stated, found = declared.get(different[0]), actual.get(different[0])
        raise MiscountedWeights(
            f"{inspect.getfile(type(trunk))}: {trunk.kind} declares {different[0]} {stated}, but its module has "
            f"{found}; correct `tensors` in this file, or the module"
        )


def build(trunk: Architecture, vocab_size: int) -> Backbone:
    """The module of an architecture, with `vocab_size` rows in its token table."""
    return build_net(trunk, vocab_size, partial(build_head, plain_loss("masked")))


def allocate(model: nn.Module, device: torch.device) -> None:
    """Replace the tensors of a model on the meta device by uninitialized ones on `device`.

    `nn.Module.to_empty` does the same with `torch.empty_like`, which for tensors on the meta device imports sympy. That
    takes 0.7 s in each process.
    """
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            empty = torch.empty(weight.shape, dtype=weight.dtype, device=device)
            setattr(module, name, nn.Parameter(empty, weight.requires_grad))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype, device=device))


@torch.no_grad()
def initialize(model: nn.Module, trunk: Architecture, seed: int) -> None:
    """Initialize matrices and tables as `Backbone.init` and `Backbone.std` define, biases with 0, norm gains with 1.

    Each parameter has its own generator, seeded by `seed` and its name, so that another head does not change the other
    weights. A position table may have its own standard deviation, as in GPT-2. It may also start with the sinusoids of
    arXiv:1706.03762, 3.5, with the variance of the other weights. Neighboring positions are then similar from the
    start, which a short run would otherwise need most of its steps to learn. For a tensor that is split between
    workers, the full tensor is drawn.
    """
    initializer = _Initializer(net_of(model), trunk, shapes_of(model), seed)
    for prefix, module in model.named_modules():
        for name, tensor in module.named_parameters(prefix, recurse=False):
            if cut := initializer.net.cuts.get(name):
                value = torch.empty(cut.shape, dtype=tensor.dtype, device=tensor.device)
                initializer.fill(name, module, value)
                tensor.copy_(cut.of(value))
            else:
                initializer.fill(name, module, tensor)


@dataclass(frozen=True)
class ReplicaGroup:
    """Workers that have the same weights. Each draws some of them, and `passed` sends them to the others.

    All of them call `passed` with a tensor of the same shape and the number of the worker that has drawn it.
    """

    number: int = 0  # index of this worker
    of: int = 1  # number of workers
    passed: Callable[[Tensor, int], Tensor] = lambda value, owner: value
    device: torch.device | str = "cpu"  # device of the received tensors


ALONE = ReplicaGroup()


@torch.no_grad()
def materialize(model: Model, settle: Callable[[Tensor], nn.Parameter], peers: ReplicaGroup = ALONE) -> None:
    """Create the weights of a model on the meta device, with the same values as on another device.

    At most two full tensors are in memory at a time. `settle` gets each float32 tensor, or this worker's part of it,
    and returns the parameter; it may cast, move or partition it. One core needs half an hour to draw the weights of
    GPT-3; the workers in `peers` share this work.
    """
    trunk = model.spec.model
    initializer = _Initializer(net_of(model), trunk, shapes_of(model), model.seed)
    places = [
        (module, name, empty)
        for prefix, module in model.named_modules()
        for name, empty in list(module.named_parameters(prefix, recurse=False))
    ]

    def draw(module: nn.Module, name: str, empty: Tensor) -> Tensor:
        cut = initializer.net.cuts.get(name)
        if name in model.given:
            value = model.given[name]().float().contiguous()
        else:
            value = torch.empty(cut.shape if cut else empty.shape, dtype=torch.float32, device="cpu")
            initializer.fill(name, module, value)
        return cut.of(value).contiguous() if cut else value

    next_value: Tensor | None = None
    for at, (module, name, empty) in enumerate(places):
        owner = at % peers.of
        if model.replaced:
            value = torch.full(empty.shape, math.nan, device="cpu")
        else:
            if owner == 0 and at + peers.number < len(places):  # all workers draw their next tensor at the same time
                next_value = draw(*places[at + peers.number])
            if owner == peers.number and next_value is not None:
                value, next_value = next_value, None
            else:
                value = torch.empty(empty.shape, dtype=torch.float32, device=peers.device)
            value = peers.passed(value, owner)
        parameter = settle(value)
        del value
        parameter.requires_grad_(empty.requires_grad)
        module.register_parameter(name.rpartition(".")[2], parameter)
    model.given = {}


@dataclass(frozen=True)
class _Initializer:
    """Draws the initial weights of a model."""

    net: Backbone
    trunk: Architecture
    shapes: Mapping[str, list[tuple[int, ...]]]  # shapes of the tensors in each parameter, by name
    seed: int

    def fill(self, name: str, module: nn.Module, tensor: Tensor) -> None:
        """Write the initial value of the parameter `name` of `module` into `tensor`."""
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
        elif net.std(name) == 0:
            tensor.zero_()
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
    """A generator whose seed is the hash of `address`, such as the run's seed and a parameter name."""
    digest = hashlib.sha256(address.encode()).digest()[:4]  # torch's generator uses a seed of 32 bits
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def _inputs(module: nn.Module, trunk: Architecture) -> int:
    """Input size of a linear layer; for the bias of a head, which is no linear layer, the width of the tied table."""
    return module.in_features if isinstance(module, nn.Linear) else trunk.table_width


def _draw_by_size(tensor: Tensor, init: Init, module: nn.Module, count: int, generator: torch.Generator) -> None:
    """Initialize a table, a linear layer, or `count` fused linear layers of one size, with bounds from their sizes."""
    outputs, inputs = len(tensor) // count, tensor.shape[1]
    if isinstance(module, nn.Linear):
        bound = inputs**-0.5 if init == "pytorch_default" else math.sqrt(6 / (inputs + outputs))
        tensor.uniform_(-bound, bound, generator=generator)
    else:
        tensor.normal_(0.0, tensor.shape[1] ** -0.5, generator=generator)


def net_of(model: nn.Module) -> Backbone:
    """The backbone of a model or of a classifier."""
    net = model.trunk
    assert isinstance(net, Backbone)
    return net


def parameter_groups(model: nn.Module, decay: float, decays: Decays = "matrices") -> list[dict[str, Any]]:
    """Two groups for an optimizer: parameters with weight decay (matrices and tables, or all), and the others.

    Frozen parameters have no weight decay, so that they do not change; ZeRO requires them in the optimizer. The lists
    in each group have one entry per parameter: `shapes` are the shapes of its tensors. `hidden` is whether it is the
    matrix of a linear layer between the tables and the heads. `slices` describes how each tensor is split
    (`Backbone.cuts`); it is empty if the tensor is not split.
    """
    frozen = tuple(f"trunk.{name}." for name in net_of(model).frozen_modules)
    shapes = shapes_of(model)
    linears = {id(module.weight) for module in net_of(model).modules() if isinstance(module, nn.Linear)}
    cuts = net_of(model).cuts
    decaying: dict[str, Any] = {"params": [], "weight_decay": decay, "shapes": [], "hidden": [], "slices": []}
    constant: dict[str, Any] = {"params": [], "weight_decay": 0.0, "shapes": [], "hidden": [], "slices": []}
    for name, parameter in model.named_parameters():
        has_decay = (decays == "all" or len(shapes[name][0]) > 1) and not name.startswith(frozen)
        group = decaying if has_decay else constant
        group["params"].append(parameter)
        group["shapes"].append(shapes[name])
        group["hidden"].append(id(parameter) in linears)
        group["slices"].append(cuts[name].each() if name in cuts else [])
    return [decaying, constant]


def shapes_of(model: nn.Module) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of the tensors in each parameter, by name; a fused parameter contains several tensors."""
    shapes = {}
    for prefix, module in model.named_modules():
        fused = module.list_fused() if isinstance(module, FusedModule) else {}
        for name, parameter in module.named_parameters(prefix, recurse=False):
            length, *others = getattr(parameter, "ds_shape", parameter.shape)  # ZeRO-3 partitions parameters
            lengths = fused.get(name.rpartition(".")[2], (length,))
            assert sum(lengths) == length, (
                f"invalid lengths of the tensors in {name}: got {lengths}, expected the sum {length}"
            )
            shapes[name] = [(each, *others) for each in lengths]
    return shapes
