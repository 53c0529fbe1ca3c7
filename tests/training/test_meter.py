from dataclasses import replace

import pytest

from training import meter
from training.meter import BatchWork, HostBoundProbe, Meter, flops, peak
from training.profiler import observe_phases, record_phase
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


def test_the_head_costs_a_fifth_of_bert_only_if_every_token_is_projected() -> None:
    dense = flops(BERT, 30_522, BatchWork(tokens=512, squares=512**2, targets=512))
    masked = flops(BERT, 30_522, BatchWork(tokens=512, squares=512**2, targets=77))
    body = flops(BERT, 30_522, BatchWork(tokens=512, squares=512**2, targets=0))
    assert (dense - body) / dense == pytest.approx(0.19, abs=0.01)
    assert (masked - body) / masked == pytest.approx(0.035, abs=0.005)


def test_bert_base_costs_six_flops_per_weight_and_token_plus_attention() -> None:
    per_token = flops(BERT, 30_522, BatchWork(tokens=512, squares=512**2, targets=0)) / 512
    # the matrices of twelve blocks; each token attends to 512 positions
    assert per_token == 6 * 84_934_656 + 12 * 12 * 768 * 512


def test_causal_attention_computes_half_of_the_pairs() -> None:
    work = BatchWork(tokens=0, squares=1024**2, targets=0)
    assert (
        flops(Decoder(num_hidden_layers=12, hidden_size=768, num_attention_heads=12), 1, work)
        == flops(BERT, 1, work) / 2
    )


# Two sequences of four tokens, counted by hand. The model has width 4, its heads together width 6, and its feed-forward
# layers width 8.
ROWS = BatchWork(tokens=8, squares=32, targets=3)
SIZE = {"num_hidden_layers": 2, "hidden_size": 4, "num_attention_heads": 2, "head_dim": 3, "intermediate_size": 8}
LINEARS, PAIR = 4 * 4 * 6 + 2 * 4 * 8, 2 * 6  # multiplications per token, and per pair of tokens, in a block
KEYS_VALUES = 2 * 4 * 6


def multiplied(trunk, work: BatchWork = ROWS, vocab_size: int = 10) -> float:
    return flops(trunk, vocab_size, work) / 6


def test_heads_may_be_wider_than_the_model() -> None:
    assert multiplied(Encoder(**SIZE)) == 2 * (8 * LINEARS + 32 * PAIR) + 3 * 10 * 4


def test_narrow_embeddings_are_projected_and_make_the_softmax_cheaper() -> None:
    assert multiplied(Encoder(**SIZE, embedding_size=2)) == 8 * 2 * 4 + 2 * (8 * LINEARS + 32 * PAIR) + 3 * 10 * 2


def test_a_window_excludes_the_cost_of_distant_pairs() -> None:
    pairs = 2 * (2 + 3 + 3 + 2)
    assert (
        multiplied(Encoder(**SIZE, attention_window=SlidingWindow(size=2)))
        == 2 * (8 * LINEARS + pairs * PAIR) + 3 * 10 * 4
    )
    assert multiplied(Encoder(**SIZE, attention_window=SlidingWindow(size=8))) == multiplied(Encoder(**SIZE))


def test_a_global_token_has_its_own_keys_and_values() -> None:
    with_first = multiplied(Encoder(**SIZE, attention_window=SlidingWindow(size=2, global_tokens="first")))
    assert with_first - multiplied(Encoder(**SIZE, attention_window=SlidingWindow(size=2))) == 2 * 8 * KEYS_VALUES


def banded(tokens: int) -> Decoder:
    return Decoder(
        **SIZE,
        position_embedding=LearnedPositions(max_position_embeddings=1024),
        attention_window=AlternatingWindow(size=tokens),
    )


def test_every_second_layer_of_a_banded_decoder_computes_only_the_band() -> None:
    # a causal sequence has half of a square, and so does the corner of the band
    spared = 32 / 2 - 2 * (0.5 + 1 + 1 + 1)
    assert multiplied(Decoder(**SIZE)) - multiplied(banded(1)) == spared * PAIR
    assert multiplied(banded(4)) == multiplied(Decoder(**SIZE))


def test_relative_attention_scores_distances_and_uses_its_memory() -> None:
    relative = Decoder(**SIZE, position_embedding=RelativePositions(mem_len=5), norm_position="post")
    remembered, pairs = 2 * 5 * KEYS_VALUES, 32 / 2 + 8 * 5
    assert multiplied(relative) == 2 * (8 * LINEARS + remembered + pairs * PAIR * 1.5) + 3 * 10 * 4


def test_of_an_adaptive_softmax_only_the_first_cluster_is_counted() -> None:
    relative = Decoder(**SIZE, position_embedding=RelativePositions(), norm_position="post")
    assert (
        multiplied(relative) - multiplied(replace(relative, token_embedding=AdaptiveEmbedding(cutoffs=(2, 6))))
        == 3 * (10 - 2) * 4
    )


def test_an_encoder_decoder_has_encoder_decoder_and_cross_attention_costs() -> None:
    work = BatchWork(tokens=8, squares=32, targets=8, source_tokens=12, source_squares=72, crossed=48)
    read, actual = 12 * LINEARS + 72 * PAIR, 8 * LINEARS + 16 * PAIR
    crossed = (8 + 12) * KEYS_VALUES + 48 * PAIR
    assert multiplied(EncoderDecoder(**SIZE), work) == 2 * (read + actual + crossed) + 8 * 10 * 4


def test_the_second_stream_has_one_query_for_each_target() -> None:
    content = 8 * LINEARS + 2 * 5 * KEYS_VALUES + (32 + 8 * 5) * PAIR * 1.5
    queries = 3 * (LINEARS - KEYS_VALUES) + 3 * (4 + 5) * PAIR * 1.5
    assert (
        multiplied(TwoStream(**SIZE, position_embedding=TwoStreamRelativePositions(mem_len=5)))
        == 2 * (content + queries) + 3 * 10 * 4
    )


def test_electra_costs_both_models_and_one_softmax() -> None:
    trunk = GeneratorDiscriminator(
        num_hidden_layers=2, hidden_size=8, num_attention_heads=2, embedding_size=4, generator_size_ratio=0.5
    )
    nets = multiplied(trunk.discriminator_net) + multiplied(trunk.generator_net) - 3 * 10 * 4
    assert multiplied(trunk) == nets
    assert multiplied(replace(trunk, sample_from="uniform")) == multiplied(trunk.discriminator_net)


def test_rates_are_means_since_the_last_report_without_skipped_time(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert clock.report() == {"perf/tokens_per_second": 50.0, "perf/step_time_s": 2.0, "perf/data_wait": 0.0}
    pass_(0.5)
    clock.add(BatchWork(tokens=100, squares=0, targets=0))
    assert clock.report() == {"perf/tokens_per_second": 200.0, "perf/step_time_s": 0.5, "perf/data_wait": 0.0}


def test_data_wait_is_the_fraction_of_time_in_the_phase_data(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(meter, "perf_counter", lambda: now[0])
    clock = Meter(BERT, 30_522, peak=None)

    def run_step() -> None:
        for phase, seconds in (("data", 1.0), ("forward", 2.0), ("backward", 1.0)):
            with observe_phases(*clock.observers), record_phase(phase):
                now[0] += seconds

    run_step()
    clock.add(BatchWork(tokens=1, squares=0, targets=0))
    run_step()  # of an evaluation
    clock.skip()
    run_step()
    clock.add(BatchWork(tokens=1, squares=0, targets=0))
    assert clock.report()["perf/data_wait"] == 0.25
    run_step()
    assert clock.report()["perf/data_wait"] == 0.0  # this step has not ended


class FakeEvent:
    """A device that completes its work when the test says so."""

    def __init__(self) -> None:
        self.recorded, self.is_done = 0, False

    def record(self) -> None:
        self.recorded, self.is_done = self.recorded + 1, False

    def query(self) -> bool:
        return self.is_done


def test_host_bound_is_the_fraction_of_phases_before_which_the_device_had_no_work_left() -> None:
    event = FakeEvent()
    clock = Meter(BERT, 30_522, peak=None, probe=HostBoundProbe(lambda: event))

    def run_phases(*phases: str, done_before: str = "") -> None:
        for phase in phases:
            event.is_done = event.is_done or phase == done_before
            with observe_phases(*clock.observers), record_phase(phase):
                pass

    run_phases("data", "forward", "backward", "optimizer", done_before="backward")  # nothing to compare forward with
    run_phases("data", "forward", "backward")
    clock.add(BatchWork(tokens=1, squares=0, targets=0))
    assert event.recorded == 5
    assert clock.report()["perf/host_bound"] == 1 / 4
    run_phases("forward", "forward", done_before="forward")  # an evaluation
    clock.skip()
    run_phases("forward", done_before="forward")
    clock.add(BatchWork(tokens=1, squares=0, targets=0))
    assert "perf/host_bound" not in clock.report()


def test_mfu_is_a_fraction_of_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(meter, "perf_counter", lambda: now[0])
    work = BatchWork(tokens=512, squares=512**2, targets=77)
    clock = Meter(BERT, 30_522, peak=4 * flops(BERT, 30_522, work))
    now[0] = 0.5
    clock.add(work)
    assert clock.report()["perf/mfu"] == pytest.approx(0.5)


def test_an_unknown_device_has_no_peak() -> None:
    assert peak("NVIDIA H200") == 989e12
    assert peak("NVIDIA GeForce RTX 3090") is None
