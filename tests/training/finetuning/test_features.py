"""States of all layers, and the features of a frozen trunk that heads use."""

import pytest
import torch

from tests.training.finetuning.nets import ROWS, TRUNKS, batch_of, rows
from tests.training.parity import hf
from training.engines import LocalEngine
from training.finetuning import RowLabel, TaskModel, Tuning, groups, train_head
from training.formats.bert import BERT
from training.losses import MaskedTokens
from training.model_spec import ModelSpec
from training.specs import EngineSettings


def model_of(net: str, features: str = "none") -> TaskModel:
    model = TaskModel(TRUNKS[net], [RowLabel(classes=2)], ROWS, seed=0, features=features)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for x in model.trunk.parameters():
            x.add_(torch.empty_like(x).normal_(0, 0.1, generator=generator))
    return model


@torch.no_grad()
def test_layer_states_equal_the_hidden_states_of_transformers() -> None:
    model, spec = model_of("bert").eval(), ModelSpec(model=TRUNKS["bert"], losses=(MaskedTokens(),), vocab_size=ROWS)
    config = hf().BertConfig(**BERT.config(spec, vocab=None), vocab_size=ROWS)  # type: ignore[arg-type]
    net = hf().BertModel(config, add_pooling_layer=False).eval()
    ours = {name: x for name, x in model.named_parameters() if name.startswith("trunk.")}
    net.load_state_dict({name.removeprefix("bert."): x for name, x in BERT.theirs(ours, spec).items()})
    given = rows(1)
    ids, segments = (torch.from_numpy(given[0][name])[None].long() for name in ("input_ids", "token_type_ids"))
    theirs = net(input_ids=ids, token_type_ids=segments, output_hidden_states=True).hidden_states
    found = model.trunk.layer_states(batch_of(given))
    assert len(found) == len(theirs) == 3
    for mine, other in zip(found, theirs, strict=True):
        torch.testing.assert_close(mine, other[0], atol=1e-5, rtol=0)
    assert float((found[0] - found[1]).abs().max()) > 0.1


@torch.no_grad()
@pytest.mark.parametrize("net", TRUNKS)
def test_layer_states_do_not_depend_on_the_other_sequences_of_the_batch(net: str) -> None:
    """The last states equal those of `states`. All states equal those of the sequence alone, at any place in a
    batch."""
    model, given = model_of(net).eval(), rows(3)
    found = model.trunk.layer_states(batch_of(given))
    assert len(found) == 3
    torch.testing.assert_close(found[-1], model.trunk.states(batch_of(given)))
    start = len(given[0]["input_ids"])
    alone = model.trunk.layer_states(batch_of([given[1]]))
    for whole, one in zip(found, alone, strict=True):
        torch.testing.assert_close(whole[start : start + len(given[1]["input_ids"])], one, atol=1e-5, rtol=0)
    assert not model.trunk.layers[0]._forward_hooks  # the hooks are removed


@pytest.mark.parametrize("features", ["last", "last_four", "scalar_mix"])
def test_a_frozen_trunk_is_unchanged_and_its_heads_learn(features: str) -> None:
    model = model_of("bert", features)
    before = {name: x.detach().clone() for name, x in model.named_parameters()}
    tuning = Tuning(learning_rate=1e-2, batch_size=4, max_steps=2, warmup_ratio=0, frozen_features=features)  # type: ignore[arg-type]
    train_head(
        LocalEngine(model, tuning.optim(2), EngineSettings(), groups(model, tuning)), [[row] for row in rows(8)], tuning
    )
    moved = {name for name, x in model.named_parameters() if not torch.equal(x, before[name])}
    assert moved == {name for name in before if not name.startswith("trunk.")}
    assert ("reading.weights" in moved) == (features == "scalar_mix")


def test_a_frozen_trunk_has_no_dropout() -> None:
    model = model_of("bert", "last").train()
    batch = batch_of(rows(3))
    torch.testing.assert_close(model.reading(model.trunk, batch), model.reading(model.trunk, batch))


@pytest.mark.parametrize("name", ["optimizer", "lr_schedule", "frozen_features", "input_format"])
def test_an_unknown_value_of_frozen_features_is_refused(name: str) -> None:
    """`frozen_features: mean` used to be treated as the last layer."""
    with pytest.raises(ValueError, match=f"invalid {name}: got 'mean', expected .* or "):
        Tuning(**{name: "mean"})  # type: ignore[arg-type]


@torch.no_grad()
def test_a_scalar_mix_starts_as_the_mean_of_all_layers_and_uses_its_weights() -> None:
    model, batch = model_of("bert", "scalar_mix").eval(), batch_of(rows(3))
    states = torch.stack(model.trunk.layer_states(batch))
    torch.testing.assert_close(model.reading(model.trunk, batch), states.mean(0))
    assert model.reading.weights is not None
    assert model.reading.factor is not None
    model.reading.weights.copy_(torch.tensor([-50.0, 50.0, -50.0]))
    model.reading.factor.fill_(2.0)
    torch.testing.assert_close(model.reading(model.trunk, batch), 2 * states[1])


@torch.no_grad()
def test_last_four_concatenates_the_layers() -> None:
    """A model with two layers has only these two, because the embeddings do not count as a layer."""
    model, batch = model_of("bert", "last_four").eval(), batch_of(rows(3))
    states = model.trunk.layer_states(batch)
    torch.testing.assert_close(model.reading(model.trunk, batch), torch.cat(states[1:], dim=-1))
