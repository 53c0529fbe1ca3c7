import pytest

from training.schedule import rate
from training.spec import AdamW

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("step", "wanted"), [(0, 0.0), (5_000, 5e-5), (10_000, 9.9e-5), (500_000, 5e-5), (MILLION, 0.0)]
)
def test_linear_has_the_rates_of_the_reference_bert(step: int, wanted: float) -> None:
    assert rate(AdamW(peak=1e-4, warmup=10_000), step, MILLION) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("step", "wanted"), [(12_000, 3e-4), (24_000, 6e-4), (262_000, 3e-4), (500_000, 0.0)])
def test_linear_from_peak_has_the_rates_of_roberta(step: int, wanted: float) -> None:
    roberta = AdamW(peak=6e-4, warmup=24_000, schedule="linear_from_peak")
    assert rate(roberta, step, 500_000) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("step", "wanted"), [(5, 0.5), (10, 1.0), (60, 0.55), (110, 0.1)])
def test_cosine_falls_from_the_peak_to_its_floor(step: int, wanted: float) -> None:
    assert rate(AdamW(peak=1.0, warmup=10, schedule="cosine", floor=0.1), step, 110) == pytest.approx(wanted)


def test_constant_stays_at_the_peak_after_warm_up() -> None:
    constant = AdamW(peak=0.5, warmup=2, schedule="constant")
    assert [rate(constant, step, 5) for step in range(5)] == [0.0, 0.25, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("schedule", ["linear", "linear_from_peak", "cosine", "constant"])
def test_a_run_without_warm_up_starts_at_the_peak(schedule: str) -> None:
    assert rate(AdamW(peak=0.5, schedule=schedule), 0, 10) == 0.5


def test_a_run_that_is_all_warm_up_has_a_rate_at_its_end() -> None:
    assert rate(AdamW(peak=1.0, warmup=10, schedule="linear_from_peak"), 10, 10) == 1.0
