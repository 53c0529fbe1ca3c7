"""FP8 products: their trial finds each kind of fault, and a model learns with them as in bf16.

Tests of torchao emulate FP8 on a CPU. The others use an FP8 product in plain torch, and need no torchao.
"""

import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from tests import family
from training.architectures import BlockCompiler, compile_blocks, float8, set_recompute, use_float8
from training.architectures.float8 import find_product_fault, iterate_layers, make_product
from training.architectures.fused import FusedLinear
from training.architectures.linears import ColumnLinear, Product, RowLinear
from training.engines import to_tensors
from training.engines.local import LocalEngine
from training.model import Model
from training.specs import EngineSettings, Fp8Recipe

CPU = torch.device("cpu")
RECIPES: tuple[Fp8Recipe, ...] = ("tensorwise", "rowwise")
BOUND = 0.02  # nats between the losses of two precisions after a short training
needs_torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None,
    reason="torchao is not installed: run `pip install 'sesame-pretraining[fp8]'`",
)


def round_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers of a tensor, rounded to FP8 with one scale."""
    scale = torch.finfo(dtype).max / x.abs().max().float().clamp(min=1e-12)
    return ((x * scale).to(dtype).float() / scale).to(x.dtype)


class PlainFloat8(torch.autograd.Function):
    """The product of tensorwise FP8 in plain torch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return round_to(x, torch.float8_e4m3fn) @ round_to(weight, torch.float8_e4m3fn).t()

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = (round_to(each, torch.float8_e4m3fn) for each in ctx.saved_tensors)
        d_y = round_to(d_y, torch.float8_e5m2)
        return d_y @ weight, d_y.flatten(0, -2).t() @ x.flatten(0, -2)


def product(
    result: Callable[[Tensor], Tensor] = lambda y: y,
    inputs: Callable[[Tensor], Tensor] = lambda x: x,
    weights: Callable[[Tensor], Tensor] = lambda weight: weight,
) -> Product:
    """FP8 in plain torch, with functions that change its result, its inputs or its weights."""
    return lambda x, weight: result(PlainFloat8.apply(inputs(x), weights(weight)))


def scale_gradient(factor: float) -> Callable[[Tensor], Tensor]:
    """The identity, with a gradient that is too large by a factor."""
    return lambda x: x * factor + (x * (1 - factor)).detach()


def test_a_correct_product_passes_and_leaves_the_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    for dtype in (torch.float32, torch.bfloat16):
        assert find_product_fault(product(), 64, 192, dtype, CPU) == ""
    assert torch.equal(torch.get_rng_state(), before)


def fail(x: Tensor) -> Tensor:
    raise RuntimeError("no kernel image\nmore lines")


def fail_if_padded(x: Tensor) -> Tensor:
    return x if len(x) % 16 == 0 else x * torch.nan


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (product(result=lambda y: 1.1 * y), "its result for 64 x 192 and 256 tokens differs by 0.11 of its norm, more"),
        (product(result=lambda y: 0 * y), "its result for 64 x 192 and 256 tokens differs by 1 of its norm"),
        (product(result=lambda y: y * torch.inf), "its result for 64 x 192 and 256 tokens differs by "),
        (product(inputs=scale_gradient(1.1)), "its gradient of inputs for 64 x 192 and 256 tokens differs by 0.1"),
        (product(weights=scale_gradient(0.9)), "its gradient of weights for 64 x 192 and 256 tokens differs by 0.1"),
        (product(result=lambda y: y.detach()), "it failed for 64 x 192 (element 0 of tensors does not require grad"),
        (product(result=fail), "it failed for 64 x 192 (no kernel image)"),
        (product(result=fail_if_padded), "its result for 64 x 192 and 250 tokens differs by nan of its norm"),
    ],
    ids=["scale", "zeros", "infinite", "inputs", "weights", "no gradient", "error", "padded"],
)
def test_each_fault_is_found_and_named(wrong: Product, fault: str) -> None:
    found = find_product_fault(wrong, 64, 192, torch.float32, CPU)
    assert found.startswith(fault)
    assert "\n" not in found


def test_unscaled_gradients_are_found() -> None:
    """Gradients of 1e-6 are 0 in FP8 without a scale."""

    class Unscaled(PlainFloat8):
        @staticmethod
        def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, Tensor]:
            x, weight = ctx.saved_tensors
            d_y = d_y.to(torch.float8_e5m2).to(x.dtype)
            return d_y @ weight, d_y.t() @ x

    found = find_product_fault(Unscaled.apply, 64, 64, torch.float32, CPU)
    assert found.startswith("its gradient of inputs for 64 x 64 and 256 tokens differs by 1 of its norm")


def gpt() -> Model:
    return family.model(family.recipe("gpt2", "tiny")).train()


def losses_of(model: Model, seed: int = 0) -> tuple[float, list[Tensor]]:
    """The loss of a batch and its gradients."""
    torch.manual_seed(seed)
    (batch,) = family.fixed_loader("gpt2", 1).at(0)[:1]
    loss = torch.stack([score.loss for score in model(to_tensors(batch, CPU)).values()]).sum()
    return float(loss.detach()), list(torch.autograd.grad(loss, list(model.parameters())))


def test_a_failed_trial_is_said_once_and_leaves_the_model_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    model = gpt()
    loss, gradients = losses_of(model)
    with caplog.at_level(logging.WARNING):
        use_float8(model, "tensorwise", CPU, product(result=lambda y: 2 * y))
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("engine.fp8_recipe tensorwise: not used, because its result for 64 x 192 and 256 tokens")
    assert message.endswith("more than 0.08; products in bf16 replace it")
    assert all(layer.product is None for layer in iterate_layers(model))
    again, gradients_again = losses_of(model)
    assert again == loss
    assert all(map(torch.equal, gradients, gradients_again))


def test_an_older_gpu_does_not_use_fp8(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    model = gpt()
    with caplog.at_level(logging.WARNING):
        use_float8(model, "tensorwise", torch.device("cuda"), product())
    assert [record.getMessage() for record in caplog.records] == [
        "engine.fp8_recipe tensorwise: not used, because it needs compute capability 8.9, and this GPU has 8.0; "
        "products in bf16 replace it"
    ]
    assert all(layer.product is None for layer in iterate_layers(model))


def test_only_linear_layers_of_blocks_are_in_fp8() -> None:
    model = gpt()
    use_float8(model, "tensorwise", CPU, product())
    names = {name for name, module in model.named_modules() if getattr(module, "product", None) is not None}
    layers = {layer for layer in iterate_layers(model) if layer.product is not None}
    assert len(names) == len(layers) == 4 * 2  # qkv, out, up and down of two blocks
    assert all("blocks" in name for name in names), names
    assert {type(layer) for layer in layers} == {FusedLinear, RowLinear, ColumnLinear}
    use_float8(model, "none", CPU)
    assert all(layer.product is None for layer in layers)


def test_layers_whose_sizes_are_no_multiples_of_16_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    model = gpt()
    for layer in iterate_layers(model):
        layer.in_features += 1
    with caplog.at_level(logging.WARNING):
        use_float8(model, "rowwise", CPU, product())
    assert "not used, because no block has a linear layer whose sizes are multiples of 16" in caplog.text


def test_passes_without_a_gradient_use_the_plain_product() -> None:
    model, (batch,) = gpt().eval(), family.fixed_loader("gpt2", 1).at(0)[:1]

    def loss() -> Tensor:
        with torch.no_grad():
            return model(to_tensors(batch, CPU))["next_token"].loss

    plain = loss()
    use_float8(model, "tensorwise", CPU, product())
    assert torch.equal(loss(), plain)
    assert not torch.equal(model(to_tensors(batch, CPU))["next_token"].loss, plain)


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchao", "torchao.float8", "torchao.float8.config", "torchao.float8.float8_linear"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadInput) as caught:
        use_float8(gpt(), "tensorwise", CPU)
    assert str(caught.value) == (
        "invalid engine.fp8_recipe: got tensorwise, expected none without the package torchao; run "
        "`pip install 'sesame-pretraining[fp8]'`, or set it to none"
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"device": "cpu"}, "none on a CPU; FP8 needs device cuda"),
        ({"precision": "fp32"}, "none with precision fp32; FP8 needs bf16"),
        ({"precision": "fp16"}, "none with precision fp16; FP8 needs bf16"),
        ({"tensor_parallel_size": 2}, "none with tensor, pipeline or sequence parallelism; this combination is not"),
        ({"zero_stage": 3}, "none with zero_stage 3: the products would keep all gathered weights until the backward"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_settings_without_fp8_are_refused_in_one_line(keys: dict[str, Any], expected: str) -> None:
    possible: dict[str, Any] = {"device": "cuda", "precision": "bf16", "fp8_recipe": "rowwise"}
    assert EngineSettings(**possible).fp8_recipe == "rowwise"
    with pytest.raises(ValueError, match=f"invalid fp8_recipe: got 'rowwise', expected {expected}") as caught:
        EngineSettings(**possible | keys)
    assert "\n" not in str(caught.value)


# torchao


@pytest.fixture
def compiles() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@needs_torchao
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_products_of_torchao_pass_their_trial(recipe: Fp8Recipe, dtype: torch.dtype) -> None:
    for inputs, outputs in ((64, 192), (512, 128)):
        assert find_product_fault(make_product(recipe, emulate=True), inputs, outputs, dtype, CPU) == ""


@needs_torchao
def test_the_tensorwise_product_is_that_of_plain_torch() -> None:
    x, weight = torch.randn(3, 16, 64), torch.randn(32, 64)
    theirs = make_product("tensorwise", emulate=True)(x, weight)
    torch.testing.assert_close(theirs, product()(x, weight), rtol=1e-5, atol=1e-4)


@needs_torchao
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.usefixtures("compiles")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's own access
def test_blocks_compile_without_a_break_and_can_be_recomputed(recipe: Fp8Recipe) -> None:
    model = gpt()
    use_float8(model, recipe, CPU)
    loss, gradients = losses_of(model)
    compiler = BlockCompiler(backend="aot_eager")  # fullgraph=True: a break is an error
    for parts in ("none", "full", "selective"):
        set_recompute(model, parts)
        for each in (None, compiler):
            compile_blocks(model, each)
            again, gradients_again = losses_of(model)
            assert again == pytest.approx(loss, rel=1e-5)
            for ours, theirs in zip(gradients_again, gradients, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)
    assert compiler.failure == ""


def train(name: str, precision: str, recipe: Fp8Recipe, steps: int) -> float:
    """The mean loss of the last ten steps of a tiny recipe, trained from its initial weights."""
    one = family.recipe(name, "tiny")
    model, losses = family.model(one).train(), list[float]()
    engine = LocalEngine(model, one.optimizer, EngineSettings(precision=precision, zero_stage=1))  # type: ignore[arg-type]
    use_float8(model, recipe, CPU)
    torch.manual_seed(0)
    loader = family.loader(one, steps)
    for step in range(steps):
        (batch,) = loader.at(step)
        score = next(iter(engine.forward(batch).values()))
        engine.backward(score.loss / score.count)
        engine.step(1e-3)
        losses.append(float(score.loss.detach()) / float(score.count))
    return sum(losses[-10:]) / 10


@needs_torchao
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert_base", "t5_base"])
def test_losses_in_fp8_are_near_those_in_bf16(name: str) -> None:
    runs: list[tuple[str, Fp8Recipe]] = [
        ("fp32", "none"),
        ("bf16", "none"),
        ("bf16", "tensorwise"),
        ("bf16", "rowwise"),
    ]
    losses = {f"{precision} {recipe}": train(name, precision, recipe, steps=100) for precision, recipe in runs}
    print(name, *(f"{run}: {loss:.4f}" for run, loss in losses.items()), sep="\n")
    assert all(loss == pytest.approx(losses["bf16 none"], abs=BOUND) for loss in losses.values()), losses


@pytest.mark.gpu
@needs_torchao
@pytest.mark.parametrize("recipe", RECIPES)
def test_fp8_kernels_of_this_gpu_pass_their_trial(recipe: Fp8Recipe) -> None:
    device = torch.device("cuda")
    if float8._find_fault_of_device(device):
        pytest.skip("this GPU has no FP8")
    for inputs, outputs in ((2048, 6144), (2048, 2048), (8192, 2048)):
        assert find_product_fault(make_product(recipe, emulate=False), inputs, outputs, torch.bfloat16, device) == ""
