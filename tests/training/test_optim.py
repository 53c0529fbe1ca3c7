import numpy as np
import pytest
import torch

from training import optim
from training.engine import set_rate
from training.spec import AdamW

RATES = [0.1, 0.05, 0.2, 0.1, 0.0, 0.1]


def oracle(weight: np.ndarray, gradients: list[np.ndarray], spec: AdamW) -> np.ndarray:
    """Ten lines of NumPy after arXiv:1711.05101, algorithm 2; google-research/bert leaves the two corrections out."""
    mean, square = np.zeros_like(weight), np.zeros_like(weight)
    for step, (gradient, rate) in enumerate(zip(gradients, RATES, strict=True), 1):
        mean = spec.beta1 * mean + (1 - spec.beta1) * gradient
        square = spec.beta2 * square + (1 - spec.beta2) * gradient**2
        fix1, fix2 = (1 - spec.beta1**step, 1 - spec.beta2**step) if spec.bias_correction else (1, 1)
        weight = weight - rate * (mean / fix1 / (np.sqrt(square / fix2) + spec.eps) + spec.decay * weight)
    return weight


@pytest.mark.parametrize("bias_correction", [True, False])
def test_adamw_takes_the_steps_of_ten_lines_of_numpy(bias_correction: bool) -> None:
    rng = np.random.default_rng(0)
    spec = AdamW(peak=0.1, decay=0.1, bias_correction=bias_correction)
    start, gradients = rng.normal(size=5), [rng.normal(size=5) for _ in RATES]
    weight = torch.nn.Parameter(torch.tensor(start))
    optimizer = optim.build(spec, [{"params": [weight], "weight_decay": spec.decay}])
    for gradient, rate in zip(gradients, RATES, strict=True):
        weight.grad = torch.tensor(gradient)
        set_rate(optimizer, rate)
        optimizer.step()
    np.testing.assert_allclose(weight.detach().numpy(), oracle(start, gradients, spec), rtol=1e-12)


def test_without_bias_correction_the_first_update_is_smaller() -> None:
    sizes = []
    for bias_correction in (True, False):
        weight = torch.nn.Parameter(torch.zeros(1))
        weight.grad = torch.ones(1)
        optim.build(AdamW(peak=1.0, bias_correction=bias_correction), [{"params": [weight], "weight_decay": 0}]).step()
        sizes.append(-weight.item())
    assert sizes == pytest.approx([1.0, 0.1 / 0.001**0.5], rel=1e-4)


def test_a_weight_without_a_gradient_stays() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optim.build(AdamW(peak=1.0, bias_correction=False), [{"params": [weight], "weight_decay": 0.1}]).step()
    assert weight.tolist() == [1, 1, 1]
