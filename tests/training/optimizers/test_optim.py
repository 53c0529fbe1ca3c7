from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from preprocessing.errors import BadInput
from training.engines.engine import set_rate
from training.optimizers import Adafactor, AdamW, Lamb, Lion, Muon, Optimizer

RATES = [0.1, 0.05, 0.2, 0.1, 0.0, 0.1]


def oracle(weight: np.ndarray, gradients: list[np.ndarray], spec: AdamW) -> np.ndarray:
    """AdamW in ten lines of NumPy after arXiv:1711.05101, algorithm 2; google-research/bert leaves out both
    corrections."""
    mean, square = np.zeros_like(weight), np.zeros_like(weight)
    for step, (gradient, rate) in enumerate(zip(gradients, RATES, strict=True), 1):
        mean = spec.beta1 * mean + (1 - spec.beta1) * gradient
        square = spec.beta2 * square + (1 - spec.beta2) * gradient**2
        fix1, fix2 = (1 - spec.beta1**step, 1 - spec.beta2**step) if spec.bias_correction else (1, 1)
        weight = weight - rate * (mean / fix1 / (np.sqrt(square / fix2) + spec.eps) + spec.weight_decay * weight)
    return weight


def lamb(weight: np.ndarray, gradients: list[np.ndarray], spec: Lamb) -> np.ndarray:
    """LAMB after google-research/albert, lamb_optimizer.py."""
    mean, square = np.zeros_like(weight), np.zeros_like(weight)
    for gradient, rate in zip(gradients, RATES, strict=True):
        mean = spec.beta1 * mean + (1 - spec.beta1) * gradient
        square = spec.beta2 * square + (1 - spec.beta2) * gradient**2
        update = mean / (np.sqrt(square) + spec.eps) + (spec.weight_decay * weight if weight.ndim > 1 else 0)
        norms = np.linalg.norm(weight), np.linalg.norm(update)
        ratio = norms[0] / norms[1] if weight.ndim > 1 and min(norms) > 0 else 1.0
        weight = weight - rate * ratio * update
    return weight


def adafactor(weight: np.ndarray, gradients: list[np.ndarray], spec: Adafactor) -> np.ndarray:
    """Adafactor after mesh_tensorflow/optimize.py, AdafactorOptimizer with T5's settings; rowanz/grover without
    `relative`."""
    square, row, column = np.zeros_like(weight), np.zeros(weight.shape[:1]), np.zeros(weight.shape[-1:])
    for step, (gradient, rate) in enumerate(zip(gradients, RATES, strict=True), 1):
        decay, now = spec.beta2 or 1 - step**-0.8, gradient**2 + 1e-30
        if weight.ndim == 2 and min(weight.shape) >= 128:
            row, column = (decay * old + (1 - decay) * now.mean(axis) for old, axis in ((row, 1), (column, 0)))
            square = np.outer(row, column) / row.mean()
        else:
            square = decay * square + (1 - decay) * now
        update = gradient / np.sqrt(square)
        update = update / max(1.0, np.sqrt((update**2).mean()))
        size = max(1e-3, np.sqrt((weight**2).mean())) if spec.scale_parameter else 1.0
        weight = weight - rate * size * update - rate * (spec.weight_decay if weight.ndim > 1 else 0) * weight
    return weight


def lion(weight: np.ndarray, gradients: list[np.ndarray], spec: Lion) -> np.ndarray:
    """Lion after arXiv:2302.06675, algorithm 2."""
    mean = np.zeros_like(weight)
    for gradient, rate in zip(gradients, RATES, strict=True):
        update = np.sign(spec.beta1 * mean + (1 - spec.beta1) * gradient)
        weight = weight - rate * (update + (spec.weight_decay if weight.ndim > 1 else 0) * weight)
        mean = spec.beta2 * mean + (1 - spec.beta2) * gradient
    return weight


def muon(weight: np.ndarray, gradients: list[np.ndarray], spec: Muon) -> np.ndarray:
    """Muon after Keller Jordan, "Muon", 2024: the polynomial acts on the singular values.

    Other parameters than matrices are updated by AdamW.
    """
    if weight.ndim == 1:
        adamw = AdamW(
            learning_rate=spec.learning_rate, beta1=spec.beta1, beta2=spec.beta2, eps=spec.eps, weight_decay=0.0
        )
        return oracle(weight, gradients, adamw)
    mean, (rows, columns) = np.zeros_like(weight), weight.shape
    scale = 0.2 * max(rows, columns) ** 0.5 if spec.adjust_lr_fn == "match_rms_adamw" else max(1, rows / columns) ** 0.5
    for gradient, rate in zip(gradients, RATES, strict=True):
        mean = spec.momentum * mean + (1 - spec.momentum) * gradient
        left, values, right = np.linalg.svd((1 - spec.momentum) * gradient + spec.momentum * mean, full_matrices=False)
        values = values / np.linalg.norm(values)
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        weight = weight - rate * (scale * left * values @ right + spec.weight_decay * weight)
    return weight


def steps(spec: Optimizer, start: np.ndarray, gradients: list[np.ndarray], lengths: Sequence[int] = ()) -> np.ndarray:
    """The weight after one update per gradient; a vector has no weight decay. With `lengths`, it is several tensors
    along its first axis."""
    weight = torch.nn.Parameter(torch.tensor(start))
    decay = spec.weight_decay if weight.ndim > 1 else 0.0
    group: dict[str, Any] = {"params": [weight], "weight_decay": decay}
    if lengths:
        group["shapes"] = [[(length, *start.shape[1:]) for length in lengths]]
    optimizer = spec.build([group])
    for gradient, rate in zip(gradients, RATES, strict=True):
        weight.grad = torch.tensor(gradient)
        set_rate(optimizer, rate)
        optimizer.step()
    return weight.detach().numpy()


@pytest.mark.parametrize("bias_correction", [True, False])
def test_adamw_updates_equal_ten_lines_of_numpy(bias_correction: bool) -> None:
    rng = np.random.default_rng(0)
    spec = AdamW(learning_rate=0.1, weight_decay=0.1, bias_correction=bias_correction)
    start, gradients = rng.normal(size=(1, 5)), [rng.normal(size=(1, 5)) for _ in RATES]
    np.testing.assert_allclose(steps(spec, start, gradients), oracle(start, gradients, spec), rtol=1e-12)


@pytest.mark.parametrize("shape", [(5,), (4, 3)])
def test_lion_updates_equal_ten_lines_of_numpy(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    spec, start, gradients = (
        Lion(learning_rate=0.1, weight_decay=0.1),
        rng.normal(size=shape),
        [rng.normal(size=shape) for _ in RATES],
    )
    np.testing.assert_allclose(steps(spec, start, gradients), lion(start, gradients, spec), rtol=1e-12)


@pytest.mark.parametrize("adjust_lr_fn", ["match_rms_adamw", "original"])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (130, 140), (64, 64)])
def test_muon_updates_equal_those_of_torch_bit_for_bit(shape: Any, adjust_lr_fn: Any) -> None:
    """torch iterates in bf16, as this test does through the key `newton_schulz_dtype`."""
    generator = torch.Generator().manual_seed(0)
    start, gradients = torch.randn(shape, generator=generator), torch.randn((4, *shape), generator=generator)
    ours, torchs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    spec = Muon(learning_rate=0.1, weight_decay=0.1, adjust_lr_fn=adjust_lr_fn, newton_schulz_dtype="bf16")
    built = spec.build([{"params": [ours], "weight_decay": 0.1}])
    reference = torch.optim.Muon([torchs], lr=0.1, weight_decay=0.1, momentum=0.95, adjust_lr_fn=adjust_lr_fn)
    for gradient in gradients:
        ours.grad, torchs.grad = gradient.clone(), gradient.clone()
        built.step()
        reference.step()
    assert torch.equal(ours, torchs)


def test_muon_makes_singular_values_about_one_and_adamw_has_its_own_rate() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix, vector, table = (torch.nn.Parameter(torch.zeros(shape)) for shape in ((40, 60), (7,), (9, 8)))
    groups = [{"params": [matrix, vector, table], "hidden": [True, False, False]}]
    built = Muon(learning_rate=1.0, weight_decay=0.0, adjust_lr_fn="original", adamw_lr_ratio=0.25).build(groups)
    set_rate(built, 0.5)
    for weight in (matrix, vector, table):
        weight.grad = torch.randn(weight.shape, generator=generator)
    built.step()
    values = torch.linalg.svdvals(matrix.detach())
    assert 0.5 * 0.65 < values.min() < values.max() < 0.5 * 1.25
    for weight in (vector, table):  # the first step of Adam is the sign
        torch.testing.assert_close(weight.detach(), -0.5 * 0.25 * weight.grad.sign(), rtol=1e-5, atol=0)


every_rule_of_whole_tensors = pytest.mark.parametrize(
    ("spec", "numpy"),
    [
        (Lamb(learning_rate=0.1, weight_decay=0.1), lamb),
        (Adafactor(), adafactor),
        (Adafactor(weight_decay=0.1), adafactor),
        (Adafactor(weight_decay=0.01, scale_parameter=False, beta2=0.999), adafactor),
        (Muon(learning_rate=0.1, weight_decay=0.1), muon),
        (Muon(learning_rate=0.1, weight_decay=0.0, adjust_lr_fn="original", momentum=0.8), muon),
    ],
    ids=["lamb", "adafactor", "adafactor with decay", "grover's adafactor", "muon", "its author's muon"],
)


@pytest.mark.parametrize("shape", [(5,), (4, 3), (130, 140)])
@every_rule_of_whole_tensors
def test_whole_tensor_optimizers_equal_ten_lines_of_numpy(spec, numpy, shape) -> None:
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=shape), [rng.normal(size=shape) for _ in RATES]
    np.testing.assert_allclose(steps(spec, start, gradients), numpy(start, gradients, spec), rtol=1e-10)


@pytest.mark.parametrize(
    ("lengths", "others"),
    [((5, 5, 5), ()), ((2, 7, 1), ()), ((4, 4, 4), (3,)), ((130, 130, 130), (140,)), ((64, 64), (512,))],
    ids=["biases", "biases of clusters", "small", "factored", "factored only as one tensor"],
)
@every_rule_of_whole_tensors
def test_fused_tensors_are_updated_like_separate_ones(spec, numpy, lengths, others) -> None:
    """As at the start of BERT: weights with deviation 0.02, and gradients of queries and keys far below those of
    values."""
    rng, num_rows = np.random.default_rng(0), sum(lengths)
    sizes = np.repeat(np.geomspace(1e-6, 1e-3, len(lengths)), lengths).reshape(-1, *(1 for _ in others))
    start = 0.02 * rng.normal(size=(num_rows, *others))
    gradients = [sizes * rng.normal(size=(num_rows, *others)) for _ in RATES]
    tensors = [slice(stop - length, stop) for stop, length in zip(np.cumsum(lengths), lengths, strict=True)]
    alone = [(start[rows], [gradient[rows] for gradient in gradients]) for rows in tensors]
    found = steps(spec, start, gradients, lengths)
    assert np.array_equal(found, np.concatenate([steps(spec, *one) for one in alone]))
    np.testing.assert_allclose(found, np.concatenate([numpy(*one, spec) for one in alone]), rtol=1e-9)
    if others:
        assert not np.allclose(found, numpy(start, gradients, spec), rtol=1e-3)


@pytest.mark.parametrize("shapes", [None, [[(50, 140), (80, 140)]]], ids=["one tensor", "two tensors"])
@pytest.mark.parametrize(
    "spec",
    [
        AdamW(learning_rate=0.1, bias_correction=False),
        Lamb(learning_rate=0.1),
        Adafactor(),
        Lion(learning_rate=0.1),
        Muon(learning_rate=0.1),
    ],
)
def test_an_optimizer_resumes_from_its_stored_state(spec: Optimizer, shapes: Any, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    start, gradients = torch.randn(130, 140, generator=generator), torch.randn(4, 130, 140, generator=generator)

    def run(weight: torch.nn.Parameter, gradients: torch.Tensor, stored: dict | None) -> dict:
        optimizer = spec.build([{"params": [weight], "weight_decay": 0.01, "shapes": shapes}])
        if stored:
            optimizer.load_state_dict(stored)
        for gradient in gradients:
            weight.grad = gradient.clone()
            optimizer.step()
        torch.save(optimizer.state_dict(), tmp_path / "state.pt")
        return torch.load(tmp_path / "state.pt", weights_only=True)

    whole, parts = (torch.nn.Parameter(start.clone()) for _ in range(2))
    run(whole, gradients, None)
    run(parts, gradients[2:], run(parts, gradients[:2], None))
    assert torch.equal(whole, parts)


def test_a_matrix_of_zeros_gets_the_unscaled_update_of_lamb() -> None:
    spec, gradients = Lamb(learning_rate=0.1), [np.ones((2, 2)) for _ in RATES]
    assert steps(spec, np.zeros((2, 2)), gradients) == pytest.approx(lamb(np.zeros((2, 2)), gradients, spec))


def state_size(shape: tuple[int, ...], *tensors: tuple[int, ...]) -> int:
    """The number of values that Adafactor stores for a parameter of this shape, which is one tensor or several."""
    weight = torch.nn.Parameter(torch.ones(shape))
    weight.grad = torch.ones_like(weight)
    optimizer = Adafactor().build([{"params": [weight], "weight_decay": 0.0, "shapes": [tensors or (shape,)]}])
    optimizer.step()
    states = [state for state in optimizer.state[weight].values() if isinstance(state, dict)]
    return sum(value.numel() for state in states for value in state.values())


def test_adafactor_stores_one_value_per_row_and_column_of_each_tensor() -> None:
    assert state_size((200, 300)) == 200 + 300
    assert state_size((600, 300), (200, 300), (200, 300), (200, 300)) == 3 * (200 + 300)
    assert state_size((128, 300), (64, 300), (64, 300)) == 128 * 300


def test_without_bias_correction_the_first_update_is_smaller() -> None:
    sizes = []
    for bias_correction in (True, False):
        weight = torch.nn.Parameter(torch.zeros(1))
        weight.grad = torch.ones(1)
        AdamW(learning_rate=1.0, bias_correction=bias_correction).build(
            [{"params": [weight], "weight_decay": 0}]
        ).step()
        sizes.append(-weight.item())
    assert sizes == pytest.approx([1.0, 0.1 / 0.001**0.5], rel=1e-4)


@pytest.mark.parametrize(
    "spec",
    [
        AdamW(learning_rate=1.0, bias_correction=False),
        Lamb(learning_rate=1.0),
        Adafactor(),
        Lion(learning_rate=1.0),
        Muon(learning_rate=1.0),
    ],
)
def test_a_weight_without_a_gradient_is_unchanged(spec: Optimizer) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    spec.build([{"params": [weight], "weight_decay": 0.1}]).step()
    assert weight.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "spec",
    [
        AdamW(learning_rate=1.0, bias_correction=False),
        Lamb(learning_rate=1.0),
        Adafactor(),
        Lion(learning_rate=1.0),
        Muon(learning_rate=1.0),
    ],
)
def test_a_group_without_weight_decay_has_none(spec: Optimizer) -> None:
    weight = torch.nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.zeros_like(weight)
    spec.build([{"params": [weight]}]).step()
    assert torch.equal(weight, torch.ones(2, 3))


@pytest.mark.parametrize(
    ("shape", "numbers"),
    [((128, 128), 256), ((128, 200), 328), ((127, 200), 127 * 200), ((200, 127), 200 * 127), ((200,), 200)],
)
def test_adafactor_stores_every_square_of_all_but_large_matrices(shape: tuple[int, ...], numbers: int) -> None:
    assert state_size(shape) == numbers


def test_adafactor_stores_the_mean_squares_of_rows_and_columns() -> None:
    weight = torch.nn.Parameter(torch.ones(128, 200, dtype=torch.float64))
    weight.grad = torch.randn(128, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    optimizer = Adafactor().build([{"params": [weight], "weight_decay": 0.0}])
    optimizer.step()
    square = weight.grad.square()
    torch.testing.assert_close(optimizer.state[weight][0]["row"][0], square.mean(1))
    torch.testing.assert_close(optimizer.state[weight][0]["column"][0], square.mean(0))


@pytest.mark.parametrize("shape", [(5,), (128, 128)])
def test_adafactor_does_not_change_a_weight_with_a_zero_gradient(shape: tuple[int, ...]) -> None:
    weight = torch.nn.Parameter(torch.ones(shape))
    weight.grad = torch.zeros_like(weight)
    Adafactor().build([{"params": [weight], "weight_decay": 0.0}]).step()
    assert torch.equal(weight, torch.ones(shape))


def test_a_short_update_of_lamb_is_scaled_to_the_norm_of_the_weights() -> None:
    rng = np.random.default_rng(0)
    spec, start = Lamb(learning_rate=0.1, weight_decay=0.0), rng.normal(size=(2, 2))
    # small compared with eps: the norm of the update is below 1
    gradients = [1e-7 * rng.normal(size=(2, 2)) for _ in RATES]
    np.testing.assert_allclose(steps(spec, start, gradients), lamb(start, gradients, spec), rtol=1e-10)


def test_lamb_does_not_change_a_matrix_with_a_zero_gradient_without_weight_decay() -> None:
    gradients = [np.zeros((2, 2)) for _ in RATES]
    assert steps(Lamb(learning_rate=0.1, weight_decay=0.0), np.ones((2, 2)), gradients).tolist() == [[1, 1], [1, 1]]


def test_adafactor_updates_a_weight_of_zeros_by_a_thousandth_of_the_rate() -> None:
    weight = torch.nn.Parameter(torch.zeros(4, 3))
    weight.grad = torch.ones_like(weight)
    Adafactor(learning_rate=0.5).build([{"params": [weight]}]).step()
    assert weight.flatten().tolist() == pytest.approx([-0.5e-3] * 12)


def test_adamw_is_fused() -> None:
    optimizer = AdamW(learning_rate=0.1).build([{"params": [torch.nn.Parameter(torch.zeros(1))]}])
    assert optimizer.defaults["fused"] is True


def test_adafactor_clips_an_update_to_the_allowed_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.optimizers.steps.adafactor.LONGEST_UPDATE", 0.25)
    weight = torch.nn.Parameter(torch.ones(4, 3))
    weight.grad = torch.ones_like(weight)  # the first update is 1 everywhere
    Adafactor(learning_rate=0.5).build([{"params": [weight]}]).step()
    assert weight.flatten().tolist() == pytest.approx([1 - 0.5 * 0.25] * 12)


@pytest.mark.parametrize("optim", [Lamb(learning_rate=0.1), Adafactor(learning_rate=0.1)])
def test_a_checkpoint_without_tensor_shapes_is_refused(optim: Optimizer) -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))
    weight.grad = torch.ones_like(weight)
    built = optim.build([{"params": [weight], "weight_decay": 0.0}])
    for group in built.param_groups:
        del group["shapes"]  # as after torch has loaded the groups of an old checkpoint
    with pytest.raises(BadInput, match="it is from an earlier version of Sesame"):
        built.step()
