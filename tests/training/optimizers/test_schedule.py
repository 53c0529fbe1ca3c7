import pytest

from orchestration.config import load
from training.optimizers import SCHEDULES, Adafactor, AdamW, Lamb, rate, rate_at
from training.specs import Phase

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("step", "wanted"), [(0, 0.0), (5_000, 5e-5), (10_000, 9.9e-5), (500_000, 5e-5), (MILLION, 0.0)]
)
def test_linear_has_the_rates_of_the_reference_bert(step: int, wanted: float) -> None:
    assert rate(AdamW(learning_rate=1e-4, warmup_steps=10_000), step, MILLION) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("step", "wanted"), [(0, 0.0), (5_000, 1e-4 * (1 - 5_000 / 766_000)), (10_000, 2e-4 * (1 - 10_000 / 766_000))]
)
def test_linear_times_warmup_has_the_rates_of_electra(step: int, wanted: float) -> None:
    """In ELECTRA, the warmup factor multiplies the decay; in BERT, it replaces the decay."""
    electra = AdamW(learning_rate=2e-4, warmup_steps=10_000, lr_schedule="linear_times_warmup")
    assert rate(electra, step, 766_000) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("step", "wanted"), [(114, 6e-5), (79_346, 6e-6), (92_000, 6e-6)])
def test_a_decay_may_end_before_the_run_as_in_gpt_3(step: int, wanted: float) -> None:
    gpt_3 = AdamW(learning_rate=6e-5, warmup_steps=114, lr_schedule="cosine", min_lr_ratio=0.1, lr_decay_steps=79_346)
    assert rate(gpt_3, step, 92_000) == pytest.approx(wanted, rel=1e-9)


def test_a_run_may_end_before_its_decay_as_in_mt_nlg() -> None:
    mt_nlg = AdamW(learning_rate=5e-5, warmup_steps=254, lr_schedule="cosine", min_lr_ratio=0.1, lr_decay_steps=86_466)
    assert rate(mt_nlg, 68_700, 68_700) > 1.5 * 5e-6


def test_a_decay_that_ends_within_the_warmup_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"invalid optimizer\.lr_decay_steps: got 10, expected 0, or a step after the 10 warmup steps"
    ):
        AdamW(learning_rate=1.0, warmup_steps=10, lr_decay_steps=10)


@pytest.mark.parametrize(("step", "wanted"), [(12_000, 3e-4), (24_000, 6e-4), (262_000, 3e-4), (500_000, 0.0)])
def test_linear_after_warmup_has_the_rates_of_roberta(step: int, wanted: float) -> None:
    roberta = AdamW(learning_rate=6e-4, warmup_steps=24_000, lr_schedule="linear_after_warmup")
    assert rate(roberta, step, 500_000) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("step", "wanted"), [(5, 0.5), (10, 1.0), (60, 0.55), (110, 0.1)])
def test_cosine_falls_from_the_peak_to_its_floor(step: int, wanted: float) -> None:
    assert rate(
        AdamW(learning_rate=1.0, warmup_steps=10, lr_schedule="cosine", min_lr_ratio=0.1), step, 110
    ) == pytest.approx(wanted)


@pytest.mark.parametrize(("step", "wanted"), [(10_000, 1.25e-4), (20_000, 2.4901434e-4), (250_000, 1.25e-4)])
def test_cosine_from_start_has_the_rates_of_transformer_xl(step: int, wanted: float) -> None:
    """CosineAnnealingLR counts all steps including the warmup: in the middle of the run, the rate is half of the
    peak."""
    lm1b = AdamW(learning_rate=2.5e-4, warmup_steps=20_000, lr_schedule="cosine_from_start")
    assert rate(lm1b, step, 500_000) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(("step", "wanted"), [(3_000, 1.5e-4), (151_500, 7.5e-5), (290_000, 1e-5), (300_000, 1e-5)])
def test_cosine_truncated_has_the_rates_of_megatron(step: int, wanted: float) -> None:
    megatron = AdamW(learning_rate=1.5e-4, warmup_steps=3_000, lr_schedule="cosine_truncated", min_lr_ratio=1 / 15)
    assert rate(megatron, step, 300_000) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("step", "wanted"), [(250, 1.5e-5), (500, 3e-5), (33_000, 3e-5 / 8), (65_500, 0.0)])
def test_polynomial_falls_with_the_third_power_as_in_longformer(step: int, wanted: float) -> None:
    longformer = AdamW(learning_rate=3e-5, warmup_steps=500, lr_schedule="polynomial")
    assert rate(longformer, step, 65_500) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("step", "wanted"), [(0, 0.0), (2_000, 2.5e-4), (4_000, 5e-4), (16_000, 2.5e-4)])
def test_inverse_sqrt_has_the_rates_of_fairseq(step: int, wanted: float) -> None:
    fairseq = AdamW(learning_rate=5e-4, warmup_steps=4_000, lr_schedule="inverse_sqrt")
    assert rate(fairseq, step, 100_000) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("step", [0, 1, 9_999, 10_000, 10_001, 40_000, 524_288])
def test_adafactor_has_the_rate_of_t5(step: int) -> None:
    assert rate(Adafactor(), step, 524_288) == pytest.approx(1 / max(step, 10_000) ** 0.5, rel=1e-12)


@pytest.mark.parametrize(("step", "wanted"), [(1_562, 8.8e-4), (62_500, 0.00088), (125_000, 0.0)])
def test_linear_has_the_rates_of_albert(step: int, wanted: float) -> None:
    """LAMB: 125,000 steps, of which 3,125 are warmup."""
    albert = Lamb(learning_rate=0.00176, warmup_steps=3_125)
    assert rate(albert, step, 125_000) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        *((0, 0.0), (1_000, 3e-3), (1_999, 6e-3 * 1_999 / 2_000), (2_000, 6e-3 * (1 - 2_000 / 7_037))),
        *((7_036, 6e-3 / 7_037), (7_037, 0.0), (7_137, 2e-3), (7_237, 4e-3 * (1 - 200 / 1_562)), (8_598, 4e-3 / 1_562)),
    ],
)
def test_a_phase_with_a_peak_warms_up_again_as_in_bert_in_76_minutes(step: int, wanted: float) -> None:
    """arXiv:1904.00962, 4.1: "we need to ramp up the learning rate from zero again in the second stage"."""
    recipe = load("bert_large_lamb")
    assert recipe.num_steps == 8_599
    assert rate_at(recipe.optimizer, recipe.phases, step) == pytest.approx(wanted, rel=1e-9, abs=1e-15)


def test_phases_without_a_peak_have_one_schedule() -> None:
    bert = load("bert_base")
    wanted = [rate(bert.optimizer, step, 1_000_000) for step in range(0, 1_000_000, 9_999)]
    assert [rate_at(bert.optimizer, bert.phases, step) for step in range(0, 1_000_000, 9_999)] == wanted


def test_a_phase_without_a_peak_continues_the_previous_schedule() -> None:
    phases = [
        Phase(seq_length=8, global_batch_size=1, steps=4),
        Phase(seq_length=8, global_batch_size=1, steps=3, learning_rate=0.5),
        *[Phase(seq_length=8, global_batch_size=1, steps=2)] * 2,
    ]
    optim = AdamW(learning_rate=1.0, lr_schedule="linear_after_warmup")
    found = [rate_at(optim, phases, step) for step in range(11)]
    assert found[:4] == [1.0, 0.75, 0.5, 0.25]
    assert found[4:] == pytest.approx([0.5 * (1 - step / 7) for step in range(7)])


def test_constant_stays_at_the_peak_after_warmup() -> None:
    constant = AdamW(learning_rate=0.5, warmup_steps=2, lr_schedule="constant")
    assert [rate(constant, step, 5) for step in range(5)] == [0.0, 0.25, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    "schedule",
    sorted(SCHEDULES),
)
def test_a_run_without_warmup_starts_at_the_peak(schedule: str) -> None:
    assert rate(AdamW(learning_rate=0.5, lr_schedule=schedule), 0, 10) == 0.5


def test_a_run_that_is_all_warmup_has_a_rate_at_its_end() -> None:
    assert rate(AdamW(learning_rate=1.0, warmup_steps=10, lr_schedule="linear_after_warmup"), 10, 10) == 1.0


def test_a_decay_of_one_step_ends_at_the_floor() -> None:
    falling = AdamW(learning_rate=1.0, warmup_steps=10, lr_schedule="linear_after_warmup", min_lr_ratio=0.25)
    assert [rate(falling, step, 11) for step in (10, 11)] == [1.0, 0.25]
