"""Layer-wise learning rates, gradual unfreezing, and the slanted triangular schedule."""

import pytest
import torch

from preprocessing.errors import BadInput
from tests.training.finetuning.nets import ROWS, TRUNKS, rows
from training.engines import LocalEngine
from training.engines.engine import set_rate
from training.finetuning import RowLabel, TaskModel, Tuning, groups, train_head
from training.finetuning.rates import thaw
from training.optimizers import rate
from training.specs import EngineSettings


def model_of(net: str) -> TaskModel:
    return TaskModel(TRUNKS[net], [RowLabel(classes=2)], ROWS, seed=0)


def rates_of(model: TaskModel, tuning: Tuning) -> dict[str, float]:
    """The learning rate of each parameter in an update, by its name."""
    engine = LocalEngine(model, tuning.optim(10), EngineSettings(), groups(model, tuning))
    set_rate(engine.optimizer, 1.0)
    rate_of = {id(x): group["lr"] for group in engine.optimizer.param_groups for x in group["params"]}
    return {name: rate_of[id(parameter)] for name, parameter in model.named_parameters()}


def test_layerwise_rates_equal_those_of_electras_code() -> None:
    """lr * d^(L + 2 - k) by hand for d = .8 and two layers: the embeddings k = 0, layer i k = i + 1, the head k = 4."""
    found = rates_of(model_of("bert"), Tuning(layerwise_lr_decay=0.8))
    assert found["heads.row_label.classify.weight"] == found["heads.row_label.summary.pooler.bias"] == 1.0
    assert found["trunk.blocks.1.attention.out.weight"] == pytest.approx(0.64)
    assert found["trunk.blocks.1.feed_forward_norm.bias"] == pytest.approx(0.64)
    assert found["trunk.blocks.0.feed_forward.up.bias"] == pytest.approx(0.512)
    for name in ("tokens", "positions", "segments", "embedding_norm"):
        assert found[f"trunk.{name}.weight"] == pytest.approx(0.4096)


def test_layerwise_rates_equal_those_of_ulmfit() -> None:
    """The top layer has the rate of the head divided by 2.6 (arXiv:1801.06146, 3.2). Each other layer has the rate of
    the layer above it divided by 2.6."""
    found = rates_of(model_of("gpt1"), Tuning(layerwise_lr_decay=1 / 2.6, head_layer_gap=1))
    assert found["trunk.blocks.1.attention.out.weight"] == pytest.approx(1 / 2.6)
    assert found["trunk.blocks.0.attention.out.weight"] == pytest.approx(1 / 6.76)
    assert found["trunk.tokens.weight"] == pytest.approx(1 / 17.576)


@pytest.mark.parametrize("net", TRUNKS)
def test_each_parameter_of_each_model_has_a_depth(net: str) -> None:
    model = model_of(net)
    depths = model.depths()
    assert depths.keys() == dict(model.named_parameters()).keys()
    layers = 4 if net == "t5" else 2
    assert model.top == layers + 2
    used = {depth for name, depth in depths.items() if not name.startswith(("model.generator_size_ratio.", "heads."))}
    # weights shared by all layers have the depth of the highest layer
    assert used == ({0, 2} if net == "albert" else set(range(layers + 1)))
    assert depths["trunk.tokens.weight"] == 0
    assert {depth for name, depth in depths.items() if name.startswith("heads.")} == {model.top}


@pytest.mark.parametrize(
    ("net", "name", "depth"),
    [
        ("megatron", "trunk.final_norm.weight", 2),
        ("gpt2", "trunk.final_norm.bias", 2),
        ("t5", "trunk.encoder.final_norm.weight", 2),
        ("t5", "trunk.decoder.final_norm.weight", 4),
        ("t5", "trunk.decoder.blocks.0.cross.query.weight", 3),
        ("t5", "trunk.decoder.distances.weight", 0),
        ("electra", "trunk.discriminator.blocks.1.attention.out.bias", 2),
        ("transformer_xl", "trunk.blocks.0.attention.biases.content", 2),
        ("xlnet", "trunk.blocks.0.attention.biases.content", 1),
        ("xlnet", "trunk.unknown", 0),
    ],
)
def test_depths_of_parameters_outside_of_plain_layers(net: str, name: str, depth: int) -> None:
    assert model_of(net).depths()[name] == depth


def test_without_layerwise_decay_all_parameters_have_one_rate() -> None:
    model = model_of("bert")
    assert set(rates_of(model, Tuning()).values()) == {1.0}
    assert len(groups(model, Tuning())) == 2  # parameters with and without weight decay


def test_weight_decay_does_not_depend_on_the_depth() -> None:
    model = model_of("bert")
    decay_of = {
        id(x): group["weight_decay"] for group in groups(model, Tuning(layerwise_lr_decay=0.5)) for x in group["params"]
    }
    for name, parameter in model.named_parameters():
        assert decay_of[id(parameter)] == (0.01 if parameter.ndim > 1 else 0.0), name


def test_one_more_layer_is_unfrozen_in_each_epoch() -> None:
    model = model_of("megatron")

    def learning() -> set[str]:
        return {
            name.removeprefix("trunk.").split(".weight")[0] for name, x in model.named_parameters() if x.requires_grad
        }

    thaw(model, 0)
    assert all(name.startswith("heads.") for name in learning())
    thaw(model, 1)
    assert {"final_norm", "blocks.1.attention.out"} <= learning()
    assert "blocks.0.attention.out" not in learning()
    thaw(model, 2)
    assert "blocks.0.attention.out" in learning()
    assert "tokens" not in learning()
    thaw(model, 3)
    assert all(x.requires_grad for x in model.parameters())


def test_frozen_layers_are_unchanged() -> None:
    """Two epochs of two updates: the head and the top layer change, those below do not."""
    model, examples = model_of("gpt1"), [[row] for row in rows(8)]
    before = {name: x.detach().clone() for name, x in model.named_parameters()}
    tuning = Tuning(learning_rate=1e-2, batch_size=4, epochs=2, warmup_ratio=0, gradual_unfreezing=True)
    engine = LocalEngine(model, tuning.optim(4), EngineSettings(), groups(model, tuning))
    train_head(engine, examples, tuning)
    moved = {name for name, x in model.named_parameters() if not torch.equal(x, before[name])}
    assert moved == {name for name in before if name.startswith(("heads.", "trunk.blocks.1."))}


def test_gradual_unfreezing_requires_one_worker() -> None:
    model = model_of("gpt1")
    engine = LocalEngine(model, Tuning().optim(4), EngineSettings())
    engine.zero = 2
    with pytest.raises(BadInput, match="use one worker without ZeRO"):
        train_head(engine, [[row] for row in rows(4)], Tuning(gradual_unfreezing=True))


@pytest.mark.parametrize(
    ("step", "wanted"),
    [(0, 0.01 / 32), (5, 0.01 * (1 + 31 * 0.5) / 32), (10, 0.01), (55, 0.00515625), (100, 0.01 / 32)],
)
def test_the_slanted_triangle_equals_that_of_ulmfit(step: int, wanted: float) -> None:
    """eta * (1 + p (ratio - 1)) / ratio, where p rises to 1 at the cut and falls after it; cut .1 of 100 updates, ratio
    32."""
    tuning = Tuning(learning_rate=0.01, warmup_ratio=0.1, lr_schedule="slanted_triangular", min_lr_ratio=1 / 32)
    assert rate(tuning.optim(100), step, 100) == pytest.approx(wanted, rel=1e-9)
