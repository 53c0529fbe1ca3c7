import pytest

from training import meter
from training.meter import Meter, Work, flops, peak
from training.spec import Decoder, Encoder

BERT = Encoder(layers=12, width=768, heads=12)


def test_the_head_costs_bert_a_fifth_when_every_token_is_projected_and_little_when_a_seventh_is() -> None:
    dense = flops(BERT, 30_522, Work(tokens=512, squares=512**2, targets=512))
    masked = flops(BERT, 30_522, Work(tokens=512, squares=512**2, targets=77))
    body = flops(BERT, 30_522, Work(tokens=512, squares=512**2, targets=0))
    assert (dense - body) / dense == pytest.approx(0.19, abs=0.01)
    assert (masked - body) / masked == pytest.approx(0.035, abs=0.005)


def test_bert_base_costs_six_flops_a_weight_and_token_and_its_attention() -> None:
    per_token = flops(BERT, 30_522, Work(tokens=512, squares=512**2, targets=0)) / 512
    assert per_token == 6 * 84_934_656 + 12 * 12 * 768 * 512  # the matrices of twelve blocks; 512 positions each way


def test_a_causal_net_attends_to_half_of_the_pairs() -> None:
    work = Work(tokens=0, squares=1024**2, targets=0)
    assert flops(Decoder(layers=12, width=768, heads=12), 1, work) == flops(BERT, 1, work) / 2


def test_rates_are_means_since_the_last_report_without_what_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(meter, "perf_counter", lambda: now[0])
    clock = Meter(BERT, 30_522, peak=None)

    def pass_(seconds: float) -> None:
        now[0] += seconds

    for seconds in (1.0, 3.0):
        pass_(seconds)
        clock.add(Work(tokens=100, squares=0, targets=0))
        pass_(10.0)
        clock.skip()
    assert clock.report() == {"perf/tokens_per_s": 50.0, "perf/step_s": 2.0}
    pass_(0.5)
    clock.add(Work(tokens=100, squares=0, targets=0))
    assert clock.report() == {"perf/tokens_per_s": 200.0, "perf/step_s": 0.5}


def test_mfu_is_the_share_of_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(meter, "perf_counter", lambda: now[0])
    work = Work(tokens=512, squares=512**2, targets=77)
    clock = Meter(BERT, 30_522, peak=4 * flops(BERT, 30_522, work))
    now[0] = 0.5
    clock.add(work)
    assert clock.report()["perf/mfu"] == pytest.approx(0.5)


def test_a_device_that_is_not_known_has_no_peak() -> None:
    assert peak("NVIDIA H200") == 989e12
    assert peak("NVIDIA GeForce RTX 3090") is None
