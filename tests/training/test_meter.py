from dataclasses import replace

import pytest

from training import meter
from training.meter import BatchWork, Meter, flops, peak
from training.specs import (
    AdaptiveEmbedding,
    AlternatingWindow,
    Decoder,
    Encoder,
    EncoderDecoder,
    GeneratorDiscriminator,
    LearnedPositions,
    RelativePositions,
    SlidingWindow,
    TwoStream,
    TwoStreamRelativePositions,
)

BERT = Encoder(num_hidden_layers=12, hidden_size=768, num_attention_heads=12)


def test_the_head_costs_bert_a_fifth_when_every_token_is_projected_and_little_when_a_seventh_is() -> None:
    dense = flops(BERT, 30_522, BatchWork(tokens=512, squares=512**2, targets=512))
    masked = flops(BERT, 30_522, BatchWork(tokens=512, squares=512**2, targets=77))
    body = flops(BERT, 30_522, BatchWork(tokens=512, squares=512**2, targets=0))
    assert (dense - body) / dense == pytest.approx(0.19, abs=0.01)
    assert (masked - body) / masked == pytest.approx(0.035, abs=0.005)


def test_bert_base_costs_six_flops_a_weight_and_token_and_its_attention() -> None:
    per_token = flops(BERT, 30_522, BatchWork(tokens=512, squares=512**2, targets=0)) / 512
    assert per_token == 6 * 84_934_656 + 12 * 12 * 768 * 512  # the matrices of twelve blocks; 512 positions each way


def test_a_causal_net_attends_to_half_of_the_pairs() -> None:
    work = BatchWork(tokens=0, squares=1024**2, targets=0)
    assert (
        flops(Decoder(num_hidden_layers=12, hidden_size=768, num_attention_heads=12), 1, work)
        == flops(BERT, 1, work) / 2
    )


# Two rows of four tokens, counted by hand; inside of the heads there are 6 where the net is 4 wide, and 8 in between.
ROWS = BatchWork(tokens=8, squares=32, targets=3)
SIZE = {"num_hidden_layers": 2, "hidden_size": 4, "num_attention_heads": 2, "head_dim": 3, "intermediate_size": 8}
LINEARS, PAIR = 4 * 4 * 6 + 2 * 4 * 8, 2 * 6  # multiplications for a token, and for a pair of tokens, in a block
KEYS_VALUES = 2 * 4 * 6


def multiplied(trunk, work: BatchWork = ROWS, vocab_size: int = 10) -> float:
    return flops(trunk, vocab_size, work) / 6


def test_heads_may_be_wider_than_their_share_of_the_net() -> None:
    assert multiplied(Encoder(**SIZE)) == 2 * (8 * LINEARS + 32 * PAIR) + 3 * 10 * 4


def test_narrow_tables_are_widened_and_cheaper_to_answer_with() -> None:
    assert multiplied(Encoder(**SIZE, embedding_size=2)) == 8 * 2 * 4 + 2 * (8 * LINEARS + 32 * PAIR) + 3 * 10 * 2


def test_a_window_spares_what_is_far() -> None:
    pairs = 2 * (2 + 3 + 3 + 2)
    assert (
        multiplied(Encoder(**SIZE, attention_window=SlidingWindow(size=2)))
        == 2 * (8 * LINEARS + pairs * PAIR) + 3 * 10 * 4
    )
    assert multiplied(Encoder(**SIZE, attention_window=SlidingWindow(size=8))) == multiplied(Encoder(**SIZE))


def test_a_token_that_all_see_has_keys_and_values_of_its_own_kind() -> None:
    with_first = multiplied(Encoder(**SIZE, attention_window=SlidingWindow(size=2, global_tokens="first")))
    assert with_first - multiplied(Encoder(**SIZE, attention_window=SlidingWindow(size=2))) == 2 * 8 * KEYS_VALUES


def banded(tokens: int) -> Decoder:
    return Decoder(
        **SIZE,
        position_embedding=LearnedPositions(max_position_embeddings=1024),
        attention_window=AlternatingWindow(size=tokens),
    )


def test_every_second_layer_of_a_banded_decoder_sees_the_band_only() -> None:
    spared = 32 / 2 - 2 * (0.5 + 1 + 1 + 1)  # a causal row is half of a square, and so is the corner of the band
    assert multiplied(Decoder(**SIZE)) - multiplied(banded(1)) == spared * PAIR
    assert multiplied(banded(4)) == multiplied(Decoder(**SIZE))


def test_relative_attention_scores_distances_and_remembers() -> None:
    relative = Decoder(**SIZE, position_embedding=RelativePositions(mem_len=5), norm_position="post")
    remembered, pairs = 2 * 5 * KEYS_VALUES, 32 / 2 + 8 * 5
    assert multiplied(relative) == 2 * (8 * LINEARS + remembered + pairs * PAIR * 1.5) + 3 * 10 * 4


def test_of_an_adaptive_softmax_the_first_cluster_counts() -> None:
    relative = Decoder(**SIZE, position_embedding=RelativePositions(), norm_position="post")
    assert (
        multiplied(relative) - multiplied(replace(relative, token_embedding=AdaptiveEmbedding(cutoffs=(2, 6))))
        == 3 * (10 - 2) * 4
    )


def test_a_sequence_to_sequence_net_reads_says_and_looks_across() -> None:
    work = BatchWork(tokens=8, squares=32, targets=8, source_tokens=12, source_squares=72, crossed=48)
    read, said = 12 * LINEARS + 72 * PAIR, 8 * LINEARS + 16 * PAIR
    crossed = (8 + 12) * KEYS_VALUES + 48 * PAIR
    assert multiplied(EncoderDecoder(**SIZE), work) == 2 * (read + said + crossed) + 8 * 10 * 4


def test_the_second_stream_has_a_query_for_each_target() -> None:
    content = 8 * LINEARS + 2 * 5 * KEYS_VALUES + (32 + 8 * 5) * PAIR * 1.5
    queries = 3 * (LINEARS - KEYS_VALUES) + 3 * (4 + 5) * PAIR * 1.5
    assert (
        multiplied(TwoStream(**SIZE, position_embedding=TwoStreamRelativePositions(mem_len=5)))
        == 2 * (content + queries) + 3 * 10 * 4
    )


def test_a_twin_costs_both_of_its_nets_and_the_answers_of_one() -> None:
    trunk = GeneratorDiscriminator(
        num_hidden_layers=2, hidden_size=8, num_attention_heads=2, embedding_size=4, generator_size_ratio=0.5
    )
    nets = multiplied(trunk.discriminator_net) + multiplied(trunk.generator_net) - 3 * 10 * 4
    assert multiplied(trunk) == nets
    assert multiplied(replace(trunk, sample_from="uniform")) == multiplied(trunk.discriminator_net)


def test_rates_are_means_since_the_last_report_without_what_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(meter, "perf_counter", lambda: now[0])
    clock = Meter(BERT, 30_522, peak=None)

    def pass_(seconds: float) -> None:
        now[0] += seconds

    for seconds in (1.0, 3.0):
        pass_(seconds)
        clock.add(BatchWork(tokens=100, squares=0, targets=0))
        pass_(10.0)
        clock.skip()
    assert clock.report() == {"perf/tokens_per_second": 50.0, "perf/step_time_s": 2.0}
    pass_(0.5)
    clock.add(BatchWork(tokens=100, squares=0, targets=0))
    assert clock.report() == {"perf/tokens_per_second": 200.0, "perf/step_time_s": 0.5}


def test_mfu_is_the_share_of_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(meter, "perf_counter", lambda: now[0])
    work = BatchWork(tokens=512, squares=512**2, targets=77)
    clock = Meter(BERT, 30_522, peak=4 * flops(BERT, 30_522, work))
    now[0] = 0.5
    clock.add(work)
    assert clock.report()["perf/mfu"] == pytest.approx(0.5)


def test_a_device_that_is_not_known_has_no_peak() -> None:
    assert peak("NVIDIA H200") == 989e12
    assert peak("NVIDIA GeForce RTX 3090") is None
