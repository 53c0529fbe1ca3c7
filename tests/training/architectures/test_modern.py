"""Rotary positions, ALiBi, grouped queries, gates, windows and parallel residuals: each against its definition."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from preprocessing.spec import InvalidValue
from tests.training import modern
from tests.training.batches import collate_padded, collate_unpadded, random_rows
from tests.training.modern import GPTJ, LLAMA, MODERN_BERT, NEOX
from tests.training.parity import built, hf
from training.architectures import PipelineStage, StageInputs
from training.architectures.rotary import rotation_at
from training.losses import Loss, MaskedTokens, NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import (
    AlibiPositions,
    AlternatingWindow,
    Architecture,
    CausalSlidingWindow,
    Decoder,
    EncoderDecoder,
    LinearScaling,
    Llama3Scaling,
    RelativePositions,
    RotaryPositions,
    YarnScaling,
    alibi_slopes,
)

VOCAB = 60
RAGGED = [5, 21, 1, 12]
every_trunk = pytest.mark.parametrize("name", modern.TRUNKS)


def loss_of(trunk: Architecture) -> Loss:
    return MaskedTokens() if trunk.kind == "encoder" else NextToken()


def made(trunk: Architecture) -> Model:
    return built(ModelSpec(model=trunk, losses=(loss_of(trunk),), vocab_size=VOCAB))


@every_trunk
def test_padding_changes_nothing(name: str) -> None:
    model, rows = made(modern.TRUNKS[name]), random_rows(RAGGED, VOCAB)
    with torch.no_grad():
        unpadded, padded = model(collate_unpadded(rows)), model(collate_padded(rows, 30))
    for kind, score in unpadded.items():
        torch.testing.assert_close(score.loss, padded[kind].loss, rtol=1e-5, atol=1e-5)


@every_trunk
def test_all_weights_learn(name: str) -> None:
    model = made(modern.TRUNKS[name])
    torch.stack([score.loss for score in model(collate_unpadded(random_rows(RAGGED, VOCAB))).values()]).sum().backward()
    still = [key for key, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not [key for key in still if "languages" not in key]


@pytest.mark.parametrize("name", modern.DECODERS)
def test_a_decoder_does_not_attend_to_the_future(name: str) -> None:
    batch, net = collate_unpadded(random_rows([10], VOCAB)), made(modern.DECODERS[name]).trunk
    changed = torch.where(torch.arange(10) < 6, batch["input_ids"], (batch["input_ids"] + 1) % VOCAB)
    with torch.no_grad():
        before, after = net(batch), net(batch | {"input_ids": changed})
    torch.testing.assert_close(before[:6], after[:6], rtol=0, atol=1e-5)
    assert not torch.allclose(before[6:], after[6:])


@pytest.mark.parametrize("of", [2, 3])
@pytest.mark.parametrize("name", [*modern.DECODERS, *modern.ENCODERS])
def test_consecutive_pipeline_stages_compute_the_same_as_the_whole_model(name: str, of: int) -> None:
    trunk = modern.TRUNKS[name]
    batch, whole = collate_unpadded(random_rows(RAGGED, VOCAB)), Model(trunk, (loss_of(trunk),), VOCAB, seed=3).eval()
    states: Tensor | None = None
    names = list[str]()
    for number in range(of):
        stage = Model(trunk, (loss_of(trunk),), VOCAB, seed=3, stage=PipelineStage(number, of)).eval()
        names += [key for key, _ in stage.named_parameters()]
        lent = whole.trunk.table if trunk.tie_word_embeddings else None
        result = stage(batch, StageInputs(states, lent))  # type: ignore[arg-type]  # a table of one tensor
        states = None if isinstance(result, dict) else result
    assert sorted(names) == sorted(key for key, _ in whole.named_parameters())
    wanted = whole(batch)
    assert {kind: score.loss for kind, score in result.items()} == {kind: one.loss for kind, one in wanted.items()}  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("name", [*modern.DECODERS, *modern.ENCODERS])
def test_a_block_is_one_graph_for_the_compiler(name: str) -> None:
    net, batch = made(modern.TRUNKS[name]).trunk, collate_unpadded(random_rows(RAGGED, VOCAB))
    block, rows, x = net.layers[1], net._layout(batch), net.embed(batch)  # type: ignore[operator]  # of Transformer
    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True, backend="eager")
    with torch.no_grad():
        assert torch.equal(compiled(x, rows), block(x, rows))


# Rotary positions.


def test_scores_of_rotated_heads_depend_on_the_distance_only() -> None:
    spec, generator = RotaryPositions(), torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 8, dtype=torch.float64, generator=generator)

    def score(query_at: int, key_at: int) -> Tensor:
        turned = (
            rotation_at(torch.tensor([at]), spec, 8).apply(x[None]) for x, at in ((query, query_at), (key, key_at))
        )
        return torch.mul(*turned).sum()

    torch.testing.assert_close(score(7, 3), score(1004, 1000), rtol=0, atol=1e-5)
    assert not torch.allclose(score(7, 3), score(7, 4))


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_pair_is_rotated_like_a_complex_number(interleaved: bool) -> None:
    spec, x = RotaryPositions(interleaved=interleaved, rope_theta=50.0), torch.randn(3, 2, 8)
    turned = rotation_at(torch.tensor([0, 1, 9]), spec, 8).apply(x)
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + 4) for i in range(4)]
    for token, position in enumerate((0, 1, 9)):
        for pair, (left, right) in enumerate(pairs):
            angle = torch.tensor(position * 50.0 ** (-2 * pair / 8))
            turn = torch.polar(torch.ones(()), angle)
            wanted = torch.complex(x[token, :, left], x[token, :, right]) * turn
            torch.testing.assert_close(turned[token, :, left], wanted.real, rtol=0, atol=1e-5)
            torch.testing.assert_close(turned[token, :, right], wanted.imag, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("scaling", "theirs"),
    [
        (LinearScaling(factor=4.0), {"rope_type": "linear", "factor": 4.0}),
        (
            Llama3Scaling(factor=8.0, original_max_position_embeddings=8192),
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        ),
        (
            YarnScaling(factor=16.0, original_max_position_embeddings=4096),
            {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096},
        ),
    ],
)
def test_scaled_frequencies_are_those_of_transformers(scaling: object, theirs: dict[str, object]) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = hf().LlamaConfig(hidden_size=512, num_attention_heads=4, rope_parameters=theirs | {"rope_theta": 5e5})
    wanted, factor = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, "cpu")
    spec = RotaryPositions(rope_theta=5e5, rope_scaling=scaling)  # type: ignore[arg-type]  # one of the union
    torch.testing.assert_close(torch.tensor(spec.frequencies(128)), wanted, rtol=1e-5, atol=0)
    assert math.isclose(spec.attention_factor(), factor)


def test_only_a_window_with_its_own_theta_has_other_frequencies() -> None:
    spec = RotaryPositions(rope_theta=160_000.0, local_rope_theta=10_000.0, rope_scaling=LinearScaling(factor=2.0))
    assert spec.frequencies(64, local=True) == RotaryPositions().frequencies(64)
    same = RotaryPositions(rope_scaling=LinearScaling(factor=2.0))
    assert same.frequencies(64, local=True) == same.frequencies(64)


# ALiBi.


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 20])
def test_slopes_are_those_of_transformers(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    alibi = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)  # slope times the position of the key
    torch.testing.assert_close(torch.tensor(alibi_slopes(heads)), alibi[:, 0, 1], rtol=1e-6, atol=0)


def test_alibi_equals_plain_attention_with_a_penalty() -> None:
    """One layer, whose output is compared with the formula: softmax(q k / sqrt(d) - slope |i - j|) v."""
    trunk = replace(modern.MOSAIC_BERT, num_hidden_layers=1)
    attention = made(trunk).trunk.blocks[0].attention  # type: ignore[union-attr, index]
    net, x = made(trunk).trunk, torch.randn(9, 32)
    batch = {"input_ids": torch.zeros(9, dtype=torch.long), "lengths": torch.tensor([9]), "positions": torch.arange(9)}
    with torch.no_grad():
        found = attention(x, net._layout(batch))  # type: ignore[operator]  # a method of Transformer
        query, key, value = attention.qkv(x).view(9, 3, 4, 8).permute(1, 2, 0, 3)
        apart = (torch.arange(9) - torch.arange(9)[:, None]).abs()
        score = query @ key.transpose(1, 2) / 8**0.5 - torch.tensor(alibi_slopes(4))[:, None, None] * apart
        wanted = attention.out((score.softmax(-1) @ value).transpose(0, 1).flatten(1))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


# Grouped queries, gates, tables.


def test_grouped_queries_equal_repeated_keys_and_values() -> None:
    grouped = made(LLAMA)
    plain = Model(replace(LLAMA, num_key_value_heads=0), (NextToken(),), VOCAB, seed=0).eval()
    state = dict(grouped.state_dict())
    for name in list(state):
        if name.endswith("qkv.weight"):
            query, key, value = state[name].split([32, 16, 16])
            repeated = [x.view(2, 8, 32).repeat_interleave(2, 0).flatten(0, 1) for x in (key, value)]
            state[name] = torch.cat([query, *repeated])
    plain.load_state_dict(state)
    batch = collate_unpadded(random_rows(RAGGED, VOCAB))
    with torch.no_grad():
        torch.testing.assert_close(plain.trunk(batch), grouped.trunk(batch), rtol=0, atol=1e-5)


def test_a_gate_multiplies_the_result_of_each_head() -> None:
    trunk = modern.DECODERS["gated attention"]
    attention = made(trunk).trunk.blocks[0].attention  # type: ignore[union-attr, index]
    x, mixed = torch.randn(2, 5, 32).unbind()
    with torch.no_grad():
        wanted = attention.out(mixed / (1 + torch.exp(-attention.gate(x))))
        torch.testing.assert_close(attention.finish(mixed, x), wanted)


def test_an_untied_table_predicts_and_the_token_table_reads() -> None:
    model = made(LLAMA)
    assert model.trunk.table is model.get_parameter("trunk.output.weight")
    batch = collate_unpadded(random_rows([8], VOCAB))
    model(batch)["next_token"].loss.backward()
    read, written = (model.get_parameter(f"trunk.{name}.weight").grad for name in ("tokens", "output"))
    assert read is not None
    assert written is not None
    assert int((read.abs().sum(1) > 0).sum()) <= 8  # only tokens of the text
    assert bool((written.abs().sum(1) > 0).all())  # all tokens, by the softmax


@pytest.mark.parametrize(
    ("trunk", "total"),
    [
        # a layer: queries and output 32 x 32, keys and values 16 x 32; gate, up and down 48 x 32; two norms
        (LLAMA, 2 * 60 * 32 + 3 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32 + 2 * 32) + 32),
        (NEOX, 2 * 60 * 32 + 3 * (4 * (32 * 32 + 32) + 2 * 4 * 32 * 32 + 5 * 32 + 2 * 64) + 64),
        (GPTJ, 2 * 60 * 32 + 3 * (4 * 32 * 32 + 2 * 4 * 32 * 32 + 5 * 32 + 64) + 64),
        # five layers with two norms each, but for the first one; a norm of the embeddings and one above the layers
        (MODERN_BERT, 60 * 32 + 5 * (4 * 32 * 32 + 3 * 48 * 32 + 2 * 32) - 32 + 2 * 32),
    ],
)
def test_counts_follow_from_the_sizes(trunk: Architecture, total: int) -> None:
    assert trunk.weights(60).total == total


@pytest.mark.parametrize(
    ("trunk", "workers", "reason"),
    [
        (LLAMA, 4, "model.num_key_value_heads is 2, not a multiple of the 4 workers that share a model"),
        (NEOX, 8, "model.num_attention_heads is 4, not a multiple of the 8 workers that share a model"),
        (LLAMA, 2, ""),
    ],
)
def test_heads_of_keys_are_divided_too(trunk: Decoder, workers: int, reason: str) -> None:
    assert trunk.split_over(workers) == reason
    assert trunk.chunks_over(workers) == reason.replace("share a model", "share sequences")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"num_key_value_heads": 3}, "model.num_key_value_heads: got 3, expected a divisor of num_attention_heads (4)"),
        ({"parallel_residual": "one_norm", "norm_position": "post"}, "model.parallel_residual: got 'one_norm'"),
        (
            {"position_embedding": RotaryPositions(partial_rotary_factor=0.1)},
            "model.position_embedding.partial_rotary_factor: got 0.1",
        ),
        (
            {"position_embedding": AlibiPositions(), "attention_window": CausalSlidingWindow(size=4)},
            "model.attention_window.kind: got 'sliding', expected full with alibi positions",
        ),
        (
            {"position_embedding": RelativePositions(), "norm_position": "post"},
            "model.num_key_value_heads: got 2, expected 0 with relative positions",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_one_line(changes: dict[str, object], line: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        replace(LLAMA, **changes)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"rope_theta": 1.0}, "rope_theta"),
        ({"local_rope_theta": 0.5}, "local_rope_theta"),
        ({"max_position_embeddings": 0}, "max_position_embeddings"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor"),
    ],
)
def test_impossible_rotations_are_refused(values: dict[str, float], key: str) -> None:
    with pytest.raises(InvalidValue, match=f"invalid model.position_embedding.{key}: got"):
        RotaryPositions(**values)  # type: ignore[arg-type]  # a wrong value on purpose


def test_windows_of_layers_follow_their_distance() -> None:
    window = AlternatingWindow(size=4, global_attn_every_n_layers=3)
    assert [window.narrows(layer) for layer in range(6)] == [False, True, True, False, True, True]
    with pytest.raises(InvalidValue, match="global_attn_every_n_layers: got 1, expected at least 2"):
        AlternatingWindow(size=4, global_attn_every_n_layers=1)


def test_t5_1_1_has_its_own_output_table() -> None:
    assert isinstance(modern.T5_1_1, EncoderDecoder)
    names = [parameter.name for parameter in modern.T5_1_1.tensors(VOCAB).parameters()]
    assert "output.weight" in names
