"""Fine-tuning for generation: the first ten losses equal those of transformers; a new decoder keeps the encoder's
states."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from preprocessing.collate import collate_padded, collate_unpadded
from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Row
from tests.training.encoder_decoders import BART, T5
from tests.training.parity import ONE_PAD, ZERO_PAD, built, labels_of, loaded, vocabulary, weights
from training.architectures import EncoderDecoderModel
from training.architectures.layout import layout
from training.engines import to_tensors
from training.engines.local import LocalEngine
from training.finetuning import (
    MaskedTargetTokens,
    TargetTokens,
    TaskModel,
    Tuning,
    orders,
    train_head,
    under_decoder,
    with_decoder,
)
from training.formats import to_transformers
from training.losses import MaskedTokens, NextToken
from training.model_spec import ModelSpec
from training.optimizers import rate
from training.specs import Architecture, Decoder, Encoder, EngineSettings, LearnedPositions, SinusoidalPositions

VOCAB = 320
GPT2 = Decoder(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=40),
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
TRUNKS: dict[str, Architecture] = {"gpt-2": replace(GPT2, norm_position="pre"), "t5": T5, "bart": BART}
TUNING = Tuning(learning_rate=3e-3, batch_size=8, max_steps=10, warmup_ratio=0.2, weight_decay=0.01, eps=1e-8)
CPU = torch.device("cpu")


def row(rng: np.random.Generator, *, source: bool) -> Row:
    length = int(rng.integers(3, 16))
    ids = rng.integers(4, VOCAB, length + 1).astype(np.int32)
    labels = ids[1:].copy()
    made = {"input_ids": ids[:-1], "token_type_ids": np.zeros(length, np.int8), "labels": labels}
    if source:
        return made | {"source_input_ids": rng.integers(4, VOCAB, int(rng.integers(3, 15))).astype(np.int32)}
    labels[: length // 2] = IGNORE  # the prompt has no labels
    return made


def theirs(rows: list[Row], *, source: bool) -> dict[str, Any]:
    """A padded batch as transformers takes it, without its labels."""
    batch = to_tensors(collate_padded(rows, 40, 1), CPU)
    side = "source_" if source else ""
    ids = batch[f"{side}input_ids"]
    mask = (torch.arange(ids.shape[1]) < batch[f"{side}lengths"][:, None]).long()
    found = {"input_ids": ids, "attention_mask": mask}
    return found | ({"decoder_input_ids": batch["input_ids"]} if source else {}) | {"wanted": labels_of(batch)}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", TRUNKS)
def test_the_first_ten_losses_equal_those_of_transformers(name: str, smoothing: float, tmp_path: Path) -> None:
    trunk, rng = TRUNKS[name], np.random.default_rng(0)
    spec = ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=VOCAB)
    begun = built(spec)
    to_transformers(
        weights(begun), spec, vocabulary(ZERO_PAD if name == "gpt-2" else ONE_PAD, tmp_path / "v"), tmp_path
    )
    oracle = loaded(tmp_path)
    rows = [row(rng, source=trunk.reads_source) for _ in range(40)]
    optim, expected = TUNING.optim(TUNING.max_steps), []
    named = dict(oracle.named_parameters())
    groups = [
        {"params": [x for x in named.values() if (x.ndim > 1) is matrices], "weight_decay": decay}
        for matrices, decay in ((True, TUNING.weight_decay), (False, 0.0))
    ]
    adam = torch.optim.AdamW(groups, lr=TUNING.learning_rate, betas=(0.9, TUNING.beta2), eps=TUNING.eps)
    for step, index_N in enumerate(orders(len(rows), TUNING.batch_size, TUNING.max_steps, TUNING.seed)):
        batch = theirs([rows[at] for at in index_N], source=trunk.reads_source)
        wanted = batch.pop("wanted").flatten()
        logits = oracle(**batch).logits.flatten(0, -2)
        loss = torch.nn.functional.cross_entropy(logits, wanted, ignore_index=IGNORE, label_smoothing=smoothing)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(oracle.parameters(), TUNING.max_grad_norm)
        for group in adam.param_groups:
            group["lr"] = rate(optim, step, TUNING.max_steps)
        adam.step()
        adam.zero_grad()
        expected.append(float(loss.detach()))
    model = TaskModel(trunk, [TargetTokens(smoothing=smoothing)], VOCAB, seed=9)
    assert model.take_over(weights(begun)) == []
    losses = list[float]()
    engine = LocalEngine(model, optim, EngineSettings())
    train_head(engine, [[each] for each in rows], TUNING, on_step=lambda done, loss: losses.append(loss))
    assert losses == pytest.approx(expected, abs=1e-4)
    assert abs(losses[-1] - losses[0]) > 5e-3


def test_heads_of_pretraining_are_reused() -> None:
    encoder = Encoder(num_hidden_layers=1, hidden_size=16, num_attention_heads=2)
    begun = weights(built(ModelSpec(model=encoder, losses=(MaskedTokens(),), vocab_size=50)))
    for smoothing in (0.0, 0.1):
        model = TaskModel(encoder, [MaskedTargetTokens(smoothing=smoothing)], 50, seed=1)
        assert model.take_over(begun) == []
        assert torch.equal(
            dict(model.named_parameters())["heads.masked_tokens.bias"], begun["heads.masked_tokens.bias"]
        )


# A decoder on top of an encoder.


def bert(**changes: Any) -> Encoder:
    sizes: dict[str, Any] = {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    return Encoder(**(sizes | {"position_embedding": LearnedPositions(max_position_embeddings=24, offset=2)} | changes))


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm_position": "pre"}, {"type_vocab_size": 0}, {"activation": "gelu_tanh", "intermediate_size": 40}],
)
def test_an_encoder_with_an_added_decoder_has_the_same_states(changes: Any) -> None:
    trunk, rng = bert(**changes), np.random.default_rng(0)
    net = built(ModelSpec(model=trunk, losses=(MaskedTokens(),), vocab_size=50))
    stacked = with_decoder(trunk)
    model = TaskModel(stacked, [TargetTokens()], 50, seed=1)
    random = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    assert model.take_over(random | under_decoder(weights(net), trunk)) == []
    rows = [
        {"input_ids": rng.integers(0, 50, n), "token_type_ids": np.zeros(n), "labels": np.full(n, IGNORE)}
        for n in (5, 22, 9)
    ]
    batch = to_tensors(collate_unpadded(rows), CPU)
    both = model.eval().trunk
    assert isinstance(both, EncoderDecoderModel)
    with torch.no_grad():
        wanted = net.trunk(batch)
        found = both.encoder(both.tokens(batch["input_ids"]), batch, layout(batch, "bidirectional"))
    torch.testing.assert_close(found, wanted)
    changed = {name for name, tensor in model.named_parameters() if not torch.equal(tensor, random[name])}
    assert changed == {name for name in random if name.startswith(("trunk.encoder.", "trunk.tokens."))}


@pytest.mark.parametrize(
    "trunk",
    [
        GPT2,
        bert(embedding_size=8),
        bert(parameter_sharing="all"),
        bert(position_embedding=SinusoidalPositions()),
        bert(num_languages=2),
    ],
)
def test_trunks_that_cannot_have_a_decoder_are_refused_in_one_line(trunk: Architecture) -> None:
    with pytest.raises(BadInput, match=f"cannot add a decoder to this {trunk.kind}: "):
        with_decoder(trunk)
