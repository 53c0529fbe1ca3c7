"""An engine may concatenate all parameters of a group: the updates and checkpoints equal those of separate parameters.

On a GPU, a step consists of few operations, whatever the number of tensors, and the host does not wait for the device.
"""

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from training.engines import local_shards
from training.engines.fragments import CheckpointFragment, Fragments, write
from training.engines.local_shards import FlatParameter, LocalShard
from training.optimizers import Adafactor, AdamW, Lamb, Lion, Muon, Optimizer
from training.optimizers.steps import adamw, optimizer_shard

WIDTH = 24
SPECS: dict[str, Optimizer] = {
    "AdamW": AdamW(learning_rate=0.1),
    "uncorrected AdamW": AdamW(learning_rate=0.1, bias_correction=False),
    "LAMB": Lamb(learning_rate=0.1),
    "Adafactor": Adafactor(learning_rate=0.1),
    "Lion": Lion(learning_rate=0.1),
    "Muon": Muon(learning_rate=0.1),
}
every_optimizer = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
Gradients = Callable[[], list[Tensor]]


@pytest.fixture(autouse=True)
def factored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adafactor factors the small matrices of these tests."""
    monkeypatch.setattr(Adafactor, "factored_from", WIDTH)


def shapes_of(layers: int) -> dict[str, list[tuple[int, ...]]]:
    """The tensors of each parameter of a net like BERT."""
    shapes: dict[str, list[tuple[int, ...]]] = {"table": [(40, WIDTH)], "segments": [(2, WIDTH)], "norm": [(WIDTH,)]}
    for layer in range(layers):
        shapes |= {
            f"layer{layer}.qkv": [(WIDTH, WIDTH)] * 3,
            f"layer{layer}.qkv_bias": [(WIDTH,)] * 3,
            f"layer{layer}.out": [(WIDTH, WIDTH)],
            f"layer{layer}.up": [(2 * WIDTH, WIDTH)],
            f"layer{layer}.up_bias": [(2 * WIDTH,)],
            f"layer{layer}.down": [(WIDTH, 2 * WIDTH)],
            f"layer{layer}.norm": [(WIDTH,)],
        }
    return shapes | {"head_bias": [(41,)], "pair": [(2, WIDTH)], "pair_bias": [(2,)]}


class Net(nn.Module):
    """The parameters of a net, with one optimizer for separate parameters, and one for a flat tensor of each group."""

    def __init__(self, spec: Optimizer, layers: int, *, is_flat: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.shapes = shapes_of(layers)
        self.weights = {
            name: nn.Parameter(torch.randn((sum(s[0] for s in shapes), *shapes[0][1:]), generator=generator))
            for name, shapes in self.shapes.items()
        }
        for name, weight in self.weights.items():
            self.register_parameter(name.replace(".", "_"), weight)
        self.flats: list[FlatParameter] = []
        kinds: dict[tuple[bool, bool], list[str]] = {}
        for name, shapes in self.shapes.items():
            is_matrix = len(shapes[0]) > 1
            is_hidden = is_matrix and name.startswith("layer") and isinstance(spec, Muon)  # only Muon needs to know
            kinds.setdefault((is_matrix, is_hidden), []).append(name)
        groups: list[dict[str, Any]] = []
        for (is_matrix, is_hidden), names in kinds.items():
            group: dict[str, Any] = {"weight_decay": 0.1 if is_matrix else 0.0}
            if is_flat:
                flat = nn.Parameter(torch.cat([self.weights[name].detach().flatten() for name in names]))
                group |= {"params": [flat], "shapes": [[s for name in names for s in self.shapes[name]]]}
                group |= {"hidden": [is_hidden], "slices": [[]]}
            else:
                group |= {"params": [self.weights[name] for name in names], "hidden": [is_hidden] * len(names)}
                group |= {"shapes": [self.shapes[name] for name in names], "slices": [[]] * len(names)}
            groups.append(group)
        self.optimizer = spec.build(groups)
        members = list(kinds.values()) if is_flat else [[name] for names in kinds.values() for name in names]
        weights = [(weight, group) for group in self.optimizer.param_groups for weight in group["params"]]
        for (weight, group), names in zip(weights, members, strict=True):
            shards, at = [], 0
            for name in names:
                shape = tuple(self.weights[name].shape)
                shards.append(LocalShard(name, shape, 0, slice(at, at + math.prod(shape))))
                at += math.prod(shape)
            self.flats.append(FlatParameter(weight, group, tuple(shards)))

    def step(self, seed: int, gradient_of: Callable[[Tensor], Tensor] = lambda gradient: gradient) -> None:
        """An update with random gradients, which are equal for both kinds of optimizers."""
        generator = torch.Generator().manual_seed(seed)
        drawn = {
            name: gradient_of(1e-3 * torch.randn(weight.shape, generator=generator))
            for name, weight in self.weights.items()
        }
        for flat in self.flats:
            gradients = [drawn[shard.name].flatten() for shard in flat.members]
            flat.weights.grad = torch.cat(gradients).view(flat.weights.shape)
        self.optimizer.step()

    def part(self) -> CheckpointFragment:
        return local_shards.part_of(self, self.flats, self.optimizer, lambda _, x: x.clone(), is_first=True)

    def load(self, folder: Path, part: CheckpointFragment) -> None:
        write(part, folder / "part.safetensors")
        local_shards.load(self.flats, self.optimizer, Fragments([folder / "part.safetensors"]))

    def bits(self) -> dict[str, bytes]:
        """Everything that a checkpoint contains."""
        part = self.part()
        numbers = {name: repr(sorted(each.items())).encode() for name, each in part.numbers.items()}
        return {key: value.numpy().tobytes() for key, value in part.tensors.items()} | numbers


def trained(spec: Optimizer, *, is_flat: bool, steps: int = 3, layers: int = 2) -> Net:
    net = Net(spec, layers, is_flat=is_flat)
    for step in range(steps):
        net.step(step)
    return net


@every_optimizer
def test_a_flat_tensor_has_the_checkpoint_of_separate_parameters(spec: Optimizer) -> None:
    """The weights and states are equal to the bit, except with torch's kernel of AdamW: it rounds the last elements of
    each tensor unlike the others."""
    separate, flat = (trained(spec, is_flat=is_flat, steps=5).part() for is_flat in (False, True))
    assert flat.shapes == separate.shapes
    assert flat.numbers == separate.numbers
    assert sorted(flat.tensors) == sorted(separate.tensors)
    rtol, atol = (1e-5, 1e-7) if spec is SPECS["AdamW"] else (0.0, 0.0)
    torch.testing.assert_close(flat.tensors, separate.tensors, rtol=rtol, atol=atol)


def test_states_have_their_names_in_a_checkpoint() -> None:
    part = trained(SPECS["Adafactor"], is_flat=True).part()
    states = {key.removeprefix("layer1.qkv|") for key in part.tensors if key.startswith("layer1.qkv|")}
    assert states == {"weight|0", *(f"{state}.{number}" for state in ("row", "column") for number in range(3))}
    bias = {key for key in part.tensors if key.startswith("layer1.qkv_bias|square")}
    assert bias == {f"layer1.qkv_bias|square|{start}" for start in (0, WIDTH, 2 * WIDTH)}
    assert part.numbers["table"] == {"step": 3}
    assert trained(SPECS["Muon"], is_flat=True).part().numbers["table"] == {"step": 3}
    assert trained(SPECS["AdamW"], is_flat=True).part().numbers["table"] == {"tensor.step": 3.0}
    assert isinstance(trained(SPECS["Muon"], is_flat=False).part().numbers["table"]["step"], int)


@pytest.mark.parametrize("is_flat", [False, True], ids=["to separate", "to flat"])
@every_optimizer
def test_a_checkpoint_of_one_kind_continues_with_the_other(spec: Optimizer, is_flat: bool, tmp_path: Path) -> None:
    wanted, source = trained(spec, is_flat=is_flat, steps=5), trained(spec, is_flat=is_flat, steps=3)
    other = trained(spec, is_flat=not is_flat, steps=1)
    other.load(tmp_path, source.part())
    assert other.bits() == source.bits()
    resumed = trained(spec, is_flat=is_flat, steps=1)
    resumed.load(tmp_path, other.part())
    for step in (3, 4):
        resumed.step(step)
    assert resumed.bits() == wanted.bits()


def test_parameters_without_a_state_get_zeros_beside_others_with_one(tmp_path: Path) -> None:
    """A parameter that never had a gradient has no state in a checkpoint of separate parameters."""
    part = trained(SPECS["Adafactor"], is_flat=False).part()
    for key in [key for key in part.tensors if key.startswith("layer0.qkv|") and "weight" not in key]:
        del part.tensors[key]
    del part.numbers["layer0.qkv"]
    net = trained(SPECS["Adafactor"], is_flat=True)
    net.load(tmp_path, part)
    loaded = net.part().tensors
    assert not loaded["layer0.qkv|row.0"].any()
    assert torch.equal(loaded["layer1.qkv|row.0"], part.tensors["layer1.qkv|row.0"])


@every_optimizer
def test_small_batches_make_the_same_update(spec: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = trained(spec, is_flat=True).bits()
    monkeypatch.setattr(optimizer_shard, "LARGEST_BATCH_ON_CPU", 2 * WIDTH * WIDTH)
    assert trained(spec, is_flat=True).bits() == wanted


class Operators(TorchDispatchMode):
    """Counts the operators of torch, and refuses those for which the host waits for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        assert not name.startswith(("aten._local_scalar_dense", "aten.nonzero", "aten.is_nonzero", "aten.equal")), name
        assert not name.startswith("aten._to_copy") or "device" not in (kwargs or {}), f"{name}: a copy between devices"
        self.counts[name] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("is_scaled", [False, True], ids=["plain", "scaled"])
@every_optimizer
def test_the_number_of_operators_does_not_depend_on_the_number_of_layers(spec: Optimizer, is_scaled: bool) -> None:
    counts = []
    for layers in (2, 24):
        net = Net(spec, layers, is_flat=True)
        if is_scaled:
            set_scale(net.optimizer, 1024.0, 0.0)
        net.step(0)
        for flat in net.flats:
            flat.weights.grad = torch.zeros_like(flat.weights)
        with Operators() as operators:
            net.optimizer.step()
        counts.append(operators.counts.total())
    assert counts[0] == counts[1]
    if isinstance(spec, AdamW):
        assert counts[0] <= 40


def set_scale(optimizer: torch.optim.Optimizer, grad_scale: float | None, found_inf: float) -> None:
    """Set the attributes that `torch.amp.GradScaler` sets."""
    optimizer.grad_scale = None if grad_scale is None else torch.tensor(grad_scale)  # type: ignore[attr-defined]
    optimizer.found_inf = torch.tensor(found_inf)  # type: ignore[attr-defined]


@pytest.fixture(params=["separate operations", "fused"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernel of AdamW without bias correction; GPUs use the fused one."""
    if request.param == "fused":
        monkeypatch.setattr(adamw, "is_fused", lambda weight: True)
    return request.param


@pytest.mark.parametrize("steps", [0, 2], ids=["the first step", "a later step"])
@pytest.mark.parametrize("is_flat", [False, True], ids=["separate", "flat"])
@every_optimizer
def test_a_skipped_step_changes_nothing(spec: Optimizer, is_flat: bool, steps: int, kernel: str) -> None:
    def spoil(gradient: Tensor) -> Tensor:
        gradient.view(-1)[0], gradient.view(-1)[-1] = math.inf, math.nan
        return gradient

    net, wanted = (trained(spec, is_flat=is_flat, steps=steps) for _ in range(2))
    set_scale(net.optimizer, 1024.0, 1.0)
    before = net.bits()
    net.step(7, spoil)
    if steps:
        assert net.bits() == before
    set_scale(net.optimizer, None, 0.0)
    for each in (net, wanted):  # the step count and the states are those of a run without the skipped step
        each.step(8)
    assert net.bits() == wanted.bits()


@pytest.mark.parametrize("is_flat", [False, True], ids=["separate", "flat"])
@every_optimizer
def test_a_gradient_is_divided_by_its_scale(spec: Optimizer, is_flat: bool, kernel: str) -> None:
    net, wanted = (trained(spec, is_flat=is_flat) for _ in range(2))
    set_scale(net.optimizer, 1024.0, 0.0)
    for step in (3, 4):
        net.step(step, lambda gradient: 1024.0 * gradient)
        wanted.step(step)
    assert net.bits() == wanted.bits()


@every_optimizer
def test_a_grad_scaler_of_torch_scales_and_skips_steps(spec: Optimizer) -> None:
    weight = nn.Parameter(torch.ones(4, 3))
    built = spec.build([{"params": [weight], "weight_decay": 0.0}])
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=100)
    scaler.scale((weight * math.inf).sum()).backward()
    scaler.step(built)
    scaler.update()
    assert torch.equal(weight, torch.ones(4, 3))
    assert scaler.get_scale() == 2.0
    built.zero_grad()
    scaler.scale(weight.sum()).backward()
    scaler.step(built)
    scaler.update()
    assert (weight < 1).all()


def test_the_fused_kernel_of_adamw_is_exactly_uncorrected(monkeypatch: pytest.MonkeyPatch) -> None:
    separate = trained(SPECS["uncorrected AdamW"], is_flat=True, steps=20).part().tensors
    monkeypatch.setattr(adamw, "is_fused", lambda weight: True)
    fused = trained(SPECS["uncorrected AdamW"], is_flat=True, steps=20).part().tensors
    torch.testing.assert_close(fused, separate, rtol=1e-5, atol=1e-6)
    for beta in (0.0, 0.9, 0.999, 1 - 2.0**-24):
        assert 1 - torch.tensor(beta) ** adamw.LAST_STEP == 1
