"""FP8 products of the linear layers of blocks, by torchao, and the trial that they must pass before a run uses them.

A product casts both its inputs to 8 bits, with scales from the largest number of each tensor or of each row
(arXiv:2209.05433), and accumulates in float32. So do both products of the backward pass. Weights, their gradients,
activations between layers and checkpoints keep their precision. Token tables, heads and layers whose sizes are no
multiples of 16 stay as they are, and so do forward passes without a gradient: an evaluation computes as the exported
model does.

torchao's `convert_to_float8_training` would replace the layers by its own class, without their names, shares and
lengths. So the layers call torchao's autograd function themselves (linears.py).
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn

from preprocessing.errors import BadInput
from training.architectures.linears import ColumnLinear, Product, RowLinear, multiply
from training.architectures.recompute import RecomputedBlocks
from training.specs import Fp8Recipe

log = logging.getLogger(__name__)

UNIT: Final = 16  # the FP8 kernels of CUDA need sizes that are multiples of it
TOKENS: Final = (256, 250)  # of a trial: a multiple of UNIT, and a number that must be padded
# Numbers with 3 bits of mantissa are rounded by 2.7 % (root mean square), those with 2 bits by 5.2 %. A product of both
# differs by 5.9 %, and a product of the former by 3.7 %.
TOLERANCE: Final = 0.08
LEAST_CAPABILITY: Final = (8, 9)  # compute capability of the first GPUs with FP8 (Ada)


def use_float8(net: nn.Module, recipe: Fp8Recipe, device: torch.device, product: Product | None = None) -> None:
    """Compute the linear layers of the blocks of a model in FP8, if a trial on this device finds no fault.

    Otherwise a warning says why the layers stay as they are. A CPU emulates FP8. `product` replaces that of torchao.
    Raises BadInput if torchao is not installed.
    """
    layers = dict.fromkeys(iterate_layers(net))
    for layer in layers:
        layer.product = None
    if recipe == "none":
        return
    if product is None:
        product = make_product(recipe, emulate=device.type == "cpu")
    if fault := _find_fault_of_device(device) or _first_fault(product, list(layers), device):
        log.warning("engine.fp8_recipe %s: not used, because %s; products in bf16 replace it", recipe, fault)
        return
    for layer in layers:
        layer.product = product
    log.info("engine.fp8_recipe %s: %d linear layers compute in FP8", recipe, len(layers))


def iterate_layers(net: nn.Module) -> Iterator[ColumnLinear | RowLinear]:
    """The linear layers of all blocks whose sizes FP8 products support."""
    stacks = (module for module in net.modules() if isinstance(module, RecomputedBlocks))
    for layer in (layer for stack in stacks for layer in stack.modules()):
        if isinstance(layer, ColumnLinear | RowLinear):
            fits = layer.in_features % UNIT == layer.out_features % UNIT == 0
            if fits:
                yield layer


def make_product(recipe: Fp8Recipe, *, emulate: bool) -> Product:
    """The FP8 product of a recipe of torchao; `emulate` rounds to FP8, then multiplies in float32."""
    apply, configure = _load_torchao(recipe)
    exact, padded = (configure(emulate, pads) for pads in (False, True))

    def multiply_in_float8(x: Tensor, weight: Tensor) -> Tensor:
        # the product for the gradient of the weight adds over tokens, and its kernel needs a multiple of UNIT
        is_multiple = (x.numel() // x.shape[-1]) % UNIT == 0
        result: Tensor = apply(x, weight.t(), *(exact if is_multiple else padded))
        return result

    return multiply_in_float8


def _load_torchao(recipe: Fp8Recipe) -> tuple[Callable[..., Tensor], Callable[[bool, bool], tuple[Any, Any]]]:
    """torchao's product with its gradients, and a function that returns its configurations for a recipe.

    The import logs warnings about kernels that this product does not use.
    """
    loggers = [logging.getLogger(name) for name in ("torchao", "torch.utils._pytree")]
    levels = [each.level for each in loggers]
    try:
        for each in loggers:
            each.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchao.float8.config import Float8LinearConfig
            from torchao.float8.float8_linear import matmul_with_hp_or_float8_args
            from torchao.float8.float8_training_tensor import LinearMMConfig, ScaledMMConfig
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torchao":
            raise
        raise BadInput(
            f"invalid engine.fp8_recipe: got {recipe}, expected none without the package torchao; run "
            "`pip install 'sesame-pretraining[fp8]'`, or set it to none"
        ) from None
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)

    def configure(emulate: bool, pads: bool) -> tuple[Any, Any]:
        config = Float8LinearConfig.from_recipe_name(recipe)
        products = (config.gemm_config_output, config.gemm_config_grad_input, config.gemm_config_grad_weight)
        # as the constructor of torchao's Float8Linear
        scaled = (ScaledMMConfig(emulate, each.use_fast_accum, False, pads) for each in products)
        return LinearMMConfig(*scaled), config

    return matmul_with_hp_or_float8_args.apply, configure


def _find_fault_of_device(device: torch.device) -> str:
    if device.type != "cuda" or torch.version.hip:
        return ""
    capability = torch.cuda.get_device_capability(device)
    needed, actual = (".".join(map(str, each)) for each in (LEAST_CAPABILITY, capability))
    return "" if capability >= LEAST_CAPABILITY else f"it needs compute capability {needed}, and this GPU has {actual}"


def _first_fault(product: Product, layers: list[ColumnLinear | RowLinear], device: torch.device) -> str:
    if not layers:
        return f"no block has a linear layer whose sizes are multiples of {UNIT}"
    shapes = dict.fromkeys((layer.in_features, layer.out_features) for layer in layers)
    faults = (find_product_fault(product, *shape, layers[0].weight.dtype, device) for shape in shapes)
    return next((fault for fault in faults if fault), "")


def find_product_fault(product: Product, inputs: int, outputs: int, dtype: torch.dtype, device: torch.device) -> str:
    """Compare a product and its gradients with the plain ones. Returns how it differs; "" if it does not.

    Activations, weights and gradients are random, with the sizes of a training: about 1, 0.02 and 1e-6. The state
    of torch's generators does not change.
    """
    try:
        return _find_product_fault(product, inputs, outputs, dtype, device)
    except Exception as error:  # whatever a kernel raises, the plain product replaces it
        message = str(error).strip().splitlines()
        return f"it failed for {inputs} x {outputs} ({message[0] if message else type(error).__name__})"


def _find_product_fault(product: Product, inputs: int, outputs: int, dtype: torch.dtype, device: torch.device) -> str:
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=generator, device=device, dtype=dtype) * scale

    weight = draw(outputs, inputs, scale=0.02)
    for tokens in TOKENS:
        x, d_y = draw(tokens, inputs), draw(tokens, outputs, scale=1e-6)

        def run(product: Product | None, x: Tensor = x, d_y: Tensor = d_y) -> list[Tensor]:
            leaves = [each.detach().requires_grad_() for each in (x, weight)]
            with torch.enable_grad():
                y = multiply(product, *leaves)
                return [y.detach(), *torch.autograd.grad(y, leaves, d_y)]

        names = ("result", "gradient of inputs", "gradient of weights")
        for name, ours, plain in zip(names, run(product), run(None), strict=True):
            error, size = (float(torch.linalg.vector_norm(each, dtype=torch.float32)) for each in (ours - plain, plain))
            if not error <= TOLERANCE * size:
                return (
                    f"its {name} for {inputs} x {outputs} and {tokens} tokens differs by {error / size:.2g} of its "
                    f"norm, more than {TOLERANCE:g}"
                )
    return ""
