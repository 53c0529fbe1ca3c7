"""The encoder-decoder: published sizes, T5's relative positions, layouts, attention masks, MASS and PEGASUS."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from preprocessing.schema import IGNORE
from tests.training.batches import collate_padded, collate_unpadded, random_rows
from tests.training.encoder_decoders import (
    BART,
    MASS,
    PEGASUS,
    PEGASUS_KNOBS,
    RAGGED,
    SOURCES,
    T5,
    T5_KNOBS,
    VOCAB,
    inside,
    net,
    rows_of,
    spec_of,
)
from tests.training.parity import built, gradients
from training.architectures.encoder_decoder import bucket
from training.architectures.layout import layout
from training.losses import NextToken
from training.model import Model
from training.specs import EncoderDecoder, RelativeBias, Seq2SeqLearnedPositions

TRUNKS = [pytest.param(BART, id="bart"), pytest.param(T5, id="t5"), pytest.param(MASS, id="mass")]
TRUNKS.append(pytest.param(PEGASUS, id="pegasus"))
SIDES = ("encoder", "decoder")


def bart_of(layers: int, width: int, heads: int) -> EncoderDecoder:
    return EncoderDecoder(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=1026, offset=2),
    )


def t5_of(layers: int, width: int, inner: int, heads: int, head_width: int) -> EncoderDecoder:
    return EncoderDecoder(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=inner,
        num_attention_heads=heads,
        head_dim=head_width,
        **T5_KNOBS,
    )


def pegasus_of(layers: int, width: int, heads: int) -> EncoderDecoder:
    return EncoderDecoder(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, **PEGASUS_KNOBS)


# Published sizes, reference/family.md B6 and D4; the PEGASUS sizes are 223M and 568M (arXiv:1912.08777, 6).


@pytest.mark.parametrize(
    ("trunk", "vocab_size", "count"),
    [
        pytest.param(bart_of(6, 768, 12), 50_265, 139_420_416, id="bart-base"),
        pytest.param(bart_of(12, 1024, 16), 50_265, 406_291_456, id="bart-large"),
        pytest.param(t5_of(6, 512, 2048, 8, 64), 32_128, 60_506_624, id="t5-small"),
        pytest.param(t5_of(12, 768, 3072, 12, 64), 32_128, 222_903_552, id="t5-base"),
        pytest.param(t5_of(24, 1024, 4096, 16, 64), 32_128, 737_668_096, id="t5-large"),
        pytest.param(t5_of(24, 1024, 16_384, 32, 128), 32_128, 2_851_598_336, id="t5-3b"),
        pytest.param(t5_of(24, 1024, 65_536, 128, 128), 32_128, 11_307_321_344, id="t5-11b"),
        pytest.param(pegasus_of(12, 768, 12), 32_000, 223_054_848, id="pegasus-base"),
        pytest.param(pegasus_of(16, 1024, 16), 96_103, 568_699_904, id="pegasus-large"),
    ],
)
def test_model_has_the_published_number_of_weights(trunk: EncoderDecoder, vocab_size: int, count: int) -> None:
    with torch.device("meta"):
        assert Model(trunk, (NextToken(),), vocab_size, seed=0).num_parameters == count


@pytest.mark.parametrize(("width", "heads", "millions"), [(768, 12, 123), (1024, 16, 208)])
def test_mass_has_the_number_of_weights_counted_by_hand(width: int, heads: int, millions: int) -> None:
    """The sizes of MASS's summarization models, which the code of the paper calls 123M and 208M."""
    trunk = EncoderDecoder(
        num_hidden_layers=6,
        hidden_size=width,
        num_attention_heads=heads,
        position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=512),
    )
    linear, norm = width * width + width, 2 * width
    block = 4 * linear + norm + (8 * width * width + 5 * width) + norm
    tables = 30_522 * width + 2 * (512 * width + norm)
    with torch.device("meta"):
        count = Model(trunk, (NextToken(),), 30_522, seed=0).num_parameters
    assert count == tables + 6 * block + 6 * (block + 4 * linear + norm)
    assert count // 10**6 == millions


# Relative positions of T5.

OFFSETS = torch.tensor([-200, -128, -64, -32, -16, -9, -8, -7, -1, 0, 1, 7, 8, 16, 64, 128, 200])


def test_distances_fall_into_the_published_buckets() -> None:
    """reference/family.md B6.3; an offset is the key position minus the query position."""
    both = [15, 15, 14, 12, 10, 8, 8, 7, 1, 0, 17, 23, 24, 26, 30, 31, 31]
    left = [31, 31, 26, 21, 16, 9, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert bucket(OFFSETS, 32, 128, both_sides=True).tolist() == both
    assert bucket(OFFSETS, 32, 128, both_sides=False).tolist() == left


def test_max_distance_within_the_exact_buckets_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"invalid model.position_embedding.max_distance: got 4, expected more than half of num_buckets .8.",
    ):
        replace(T5, position_embedding=RelativeBias(num_buckets=8, max_distance=4))


def test_attention_bias_is_that_of_the_bucket_of_query_and_key() -> None:
    sides = net(T5)
    for side in (sides.encoder, sides.decoder):
        assert side.distances is not None
        bias_HSS = side.bias(15, torch.device("cpu"))[0]
        for query, key in [(0, 0), (3, 3), (14, 0), (9, 7), (2, 12)]:
            if side is sides.decoder and key > query:
                assert torch.all(bias_HSS[:, query, key] == -torch.inf)
            else:
                number = int(bucket(torch.tensor([key - query]), 8, 10, both_sides=side is sides.encoder))
                assert torch.equal(bias_HSS[:, query, key], side.distances.weight[number])


def test_a_stack_has_one_relative_bias_table_and_cross_attention_has_none() -> None:
    names = [name for name, _ in net(T5).named_parameters() if "distances" in name]
    assert names == ["encoder.distances.weight", "decoder.distances.weight"]


def test_t5_divides_the_last_states_by_the_root_of_the_width() -> None:
    made, batch = net(T5), collate_unpadded(rows_of(T5))
    torch.testing.assert_close(made(batch), made.states(batch) / 32**0.5, rtol=0, atol=1e-7)


# Layouts and attention masks.


@pytest.mark.parametrize("trunk", TRUNKS)
def test_unpadded_states_and_gradients_equal_padded_ones(trunk: EncoderDecoder) -> None:
    rows, states, slopes = rows_of(trunk), [], []
    for batch in (collate_unpadded(rows), collate_padded(rows, 14)):
        model = built(spec_of(trunk))
        hidden = model.trunk(batch)
        states.append(hidden if hidden.ndim == 2 else hidden[inside(batch)])
        model(batch)["next_token"].loss.backward()
        slopes.append(gradients(model))
    torch.testing.assert_close(*states, rtol=0, atol=1e-5)
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trunk", TRUNKS)
@pytest.mark.parametrize(("lengths", "sources"), [(RAGGED, SOURCES), ([6, 6, 6], [4, 4, 4])])
def test_sequences_of_a_batch_have_the_same_states_as_alone(
    trunk: EncoderDecoder, lengths: list[int], sources: list[int]
) -> None:
    rows, made = rows_of(trunk, lengths, sources), net(trunk)
    alone = torch.cat([made(collate_unpadded([row])) for row in rows])
    torch.testing.assert_close(made(collate_unpadded(rows)), alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("trunk", TRUNKS)
def test_decoder_attends_to_its_past_and_to_the_whole_source(trunk: EncoderDecoder) -> None:
    row, made = rows_of(trunk, [10], [8])[0], net(trunk)
    row["source_seen"] = np.ones(8, np.bool_)
    before = made(collate_unpadded([row]))
    later, other = row["input_ids"].copy(), row["source_input_ids"].copy()
    later[6], other[7] = 2 + later[6] % 300, 2 + other[7] % 300
    after = made(collate_unpadded([row | {"input_ids": later}]))
    assert torch.equal(before[:6], after[:6])
    assert (before[6:] - after[6:]).abs().amax(-1).min() > 1e-4
    assert (before - made(collate_unpadded([row | {"source_input_ids": other}]))).abs().amax(-1).min() > 1e-4


@pytest.mark.parametrize("trunk", TRUNKS)
def test_a_sequence_without_a_source_is_input_of_both_sides(trunk: EncoderDecoder) -> None:
    made, rows = net(trunk), random_rows(RAGGED, VOCAB)
    twice = [row | {"source_input_ids": row["input_ids"]} for row in rows]
    assert torch.equal(made(collate_unpadded(rows)), made(collate_unpadded(twice)))


@pytest.mark.parametrize("trunk", TRUNKS)
def test_summary_is_the_last_state_of_the_decoder(trunk: EncoderDecoder) -> None:
    made, rows = net(trunk), random_rows(RAGGED, VOCAB)
    last = [made.states(collate_unpadded([row]))[-1] for row in rows]
    for batch in (collate_unpadded(rows), collate_padded(rows, 14)):
        torch.testing.assert_close(made.summary(batch), torch.stack(last), rtol=0, atol=1e-5)


@pytest.mark.parametrize("trunk", TRUNKS)
def test_dropout_acts_in_training_and_not_in_evaluation(trunk: EncoderDecoder) -> None:
    batch = collate_unpadded(rows_of(trunk))
    for keys in ({"hidden_dropout": 0.1}, {"attention_dropout": 0.1}):
        made = net(replace(trunk, **keys))
        assert torch.equal(made(batch), made(batch))
        made.train()
        assert not torch.equal(made(batch), made(batch))


def test_dropout_of_t5_acts_inside_feed_forward_layers_and_on_the_last_states() -> None:
    made = net(replace(T5, hidden_dropout=0.5)).train()
    assert made.decoder.blocks[0].feed_forward.dropout.p == 0.5
    assert 0.3 < float((made(collate_unpadded(rows_of(T5))) == 0).float().mean()) < 0.7
    assert net(replace(BART, hidden_dropout=0.5)).decoder.blocks[0].feed_forward.dropout.p == 0


def test_dropout_of_pegasus_acts_inside_feed_forward_layers_and_not_on_the_last_states() -> None:
    """google-research/pegasus: layers/transformer_block.py, and models/transformer.py after the last norm."""
    made = net(replace(PEGASUS, hidden_dropout=0.5)).train()
    assert made.encoder.blocks[0].feed_forward.dropout.p == made.decoder.blocks[0].feed_forward.dropout.p == 0.5
    batch = collate_unpadded(rows_of(PEGASUS))
    assert torch.all(made(batch) != 0)
    source = {name.removeprefix("source_"): x for name, x in batch.items() if name.startswith("source_")}
    read = made.encoder(made.tokens(source["input_ids"]), source, layout(source, "bidirectional"))
    assert torch.all(read != 0)


# PEGASUS: the input of its stacks.


@torch.no_grad()
@pytest.mark.parametrize("side", SIDES)
def test_scaled_embeddings_are_added_to_sines_followed_by_cosines(side: str) -> None:
    """The sines of all frequencies come first, as in layers/timing.py of the authors' code."""
    made, row, given = net(PEGASUS), rows_of(PEGASUS, [12], [12])[0], list[torch.Tensor]()
    getattr(made, side).blocks[0].register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    made(collate_unpadded([row]))
    angle_SN = np.arange(12)[:, None] / 10_000 ** (np.arange(0, 32, 2) / 32)
    table_SD = torch.from_numpy(np.concatenate([np.sin(angle_SN), np.cos(angle_SN)], axis=1)).float()
    ids_S = torch.from_numpy(row["input_ids" if side == "decoder" else "source_input_ids"])
    torch.testing.assert_close(given[0], made.tokens.weight[ids_S] * 32**0.5 + table_SD, rtol=0, atol=1e-5)


def test_sinusoids_of_pegasus_are_not_weights() -> None:
    names = [name for name, _ in net(PEGASUS).named_parameters() if "blocks" not in name]
    assert names == ["tokens.weight", *(f"{side}.final_norm.{x}" for side in SIDES for x in ("weight", "bias"))]


@torch.no_grad()
def test_scaling_the_table_is_equivalent_to_scaling_the_embeddings() -> None:
    batch, larger = collate_unpadded(rows_of(PEGASUS)), net(replace(PEGASUS, scale_embedding=False))
    wanted = net(PEGASUS)(batch)
    assert (larger(batch) - wanted).abs().amax(-1).min() > 1e-3
    larger.tokens.weight *= 32**0.5
    torch.testing.assert_close(larger(batch), wanted, rtol=0, atol=1e-5)


# MASS: reference/family.md B6.1.


def test_decoder_does_not_attend_to_the_hidden_part_of_the_source() -> None:
    """The test changes the encoder's states, because the encoder itself reads the hidden part."""
    made, row = net(MASS), rows_of(MASS, [6], [10])[0]
    batch = collate_unpadded([row | {"source_seen": np.arange(10) < 7}])
    read = torch.randn(10, 32, generator=torch.Generator().manual_seed(0))
    made.encoder.forward = lambda *_: read
    before = made(batch)
    read = torch.cat([read[:7], read[7:] + 1])
    assert torch.equal(before, made(batch))
    read = torch.cat([read[:6], read[6:] + 1])
    assert (before - made(batch)).abs().amax(-1).min() > 1e-4


def test_mass_is_a_causal_model_if_the_whole_source_is_hidden() -> None:
    """k = the length of the sequence: only the fragment carries information."""
    made, rows = net(MASS), rows_of(MASS)
    hidden = [row | {"source_seen": np.zeros(len(row["source_input_ids"]), np.bool_)} for row in rows]
    other = [row | {"source_input_ids": (row["source_input_ids"] + 1) % VOCAB} for row in hidden]
    for lay in (collate_unpadded, lambda rows: collate_padded(rows, 14)):
        before = made(lay(hidden))
        assert torch.all(before.isfinite())
        assert torch.equal(before, made(lay(other)))


@pytest.mark.parametrize("start", [0, 4])
def test_fragment_at_its_positions_equals_that_part_of_the_whole_sequence(start: int) -> None:
    """The decoder reads the whole sequence, but attends only to the fragment and predicts it. Its states equal those of
    the fragment alone."""
    made, whole = net(MASS), rows_of(MASS, [12], [12])[0] | {"positions": np.arange(12)}
    part = {
        name: value[start : start + 5]
        for name, value in whole.items()
        if name in ("input_ids", "positions", "languages")
    }
    labels_S = np.where((np.arange(12) >= start) & (np.arange(12) < start + 5), whole["input_ids"], IGNORE)
    fragment = collate_unpadded([whole | part | {"labels": part["input_ids"]}])
    batch = collate_unpadded([whole | {"labels": labels_S}])
    seen_SS = torch.ones(12, 12, dtype=torch.bool).tril() & torch.from_numpy(labels_S != IGNORE)
    seen_SS = seen_SS | torch.eye(12, dtype=torch.bool)
    rows = replace(layout(batch, "causal"), causal=False, seen=seen_SS[None, None])
    source = {name.removeprefix("source_"): x for name, x in batch.items() if name.startswith("source_")}
    source_rows = layout(source, "bidirectional")
    read = made.encoder(made.tokens(source["input_ids"]), source, source_rows)
    hide = replace(source_rows, seen=source["seen"][None, None, None])
    states = made.decoder(made.tokens(batch["input_ids"]), batch, rows, (read, hide))
    torch.testing.assert_close(states[batch["targets_at"]], made(fragment), rtol=0, atol=1e-5)


def test_positions_of_a_fragment_are_those_in_the_sequence() -> None:
    made, row = net(MASS), rows_of(MASS, [6], [10])[0]
    moved = row | {"positions": row["positions"] + 4}
    assert (made(collate_unpadded([row])) - made(collate_unpadded([moved]))).abs().amax(-1).min() > 1e-4


# Weight initialization.


@torch.no_grad()
def test_t5_is_initialized_as_in_its_authors_code() -> None:
    trunk = replace(T5, hidden_size=64, num_attention_heads=8, head_dim=16, intermediate_size=96)
    wanted = {"tokens": 1.0, "query": (64 * 16) ** -0.5, "key_value": 64**-0.5, "out": (8 * 16) ** -0.5}
    wanted |= {"up": 64**-0.5, "down": 96**-0.5, "distances": 64**-0.5}
    for name, tensor in Model(trunk, (NextToken(),), 500, seed=0).named_parameters():
        if tensor.ndim == 1:
            assert torch.all(tensor == 1), name
        else:
            std = wanted[name.split(".")[-2]]
            assert float(tensor.std()) == pytest.approx(std, rel=5 / (2 * tensor.numel()) ** 0.5), name


@torch.no_grad()
@pytest.mark.parametrize("trunk", [BART, PEGASUS], ids=["bart", "pegasus"])
def test_bart_and_pegasus_initialize_all_matrices_with_one_deviation(trunk: EncoderDecoder) -> None:
    for name, tensor in Model(replace(trunk, init_std=0.02), (NextToken(),), 500, seed=0).named_parameters():
        if tensor.ndim > 1:
            assert float(tensor.std()) == pytest.approx(0.02, rel=5 / (2 * tensor.numel()) ** 0.5), name
        else:
            assert torch.all(tensor == float("norm.weight" in name)), name
