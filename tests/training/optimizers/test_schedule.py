import math

import pytest
import torch
from transformers import get_wsd_schedule

from orchestration.config import check, load, load_cluster, shorten
from training.optimizers import SCHEDULES, Adafactor, AdamW, Lamb, rate, rate_at
from training.optimizers.schedule import DecayType
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


@pytest.mark.parametrize(("warmup", "decay", "floor"), [(0, 20, 0.0), (10, 90, 0.0), (7, 30, 0.1), (10, 1, 0.25)])
@pytest.mark.parametrize("decay_type", ["linear", "cosine", "1-sqrt"])
def test_warmup_stable_decay_has_the_rates_of_transformers(
    decay_type: DecayType, warmup: int, decay: int, floor: float
) -> None:
    ours = AdamW(
        learning_rate=0.5,
        warmup_steps=warmup,
        lr_schedule="warmup_stable_decay",
        num_decay_steps=decay,
        decay_type=decay_type,
        min_lr_ratio=floor,
    )
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    theirs = get_wsd_schedule(optimizer, warmup, decay, 100, decay_type=decay_type, min_lr_ratio=floor)
    (rate_of,) = theirs.lr_lambdas
    found = [rate(ours, step, 100) for step in range(101)]
    assert found == pytest.approx([0.5 * rate_of(step) for step in range(101)], rel=1e-12, abs=1e-15)


def test_a_decay_of_one_minus_sqrt_has_the_closed_form_of_the_paper() -> None:
    """Haegele et al. 2024 (arXiv:2405.18392), 4: 1 - sqrt((n - (N - N_decay)) / N_decay), 20 % of N steps."""
    optim = AdamW(
        learning_rate=2e-3,
        warmup_steps=300,
        lr_schedule="warmup_stable_decay",
        num_decay_steps=0.2,
        decay_type="1-sqrt",
    )
    for step in (300, 7_999, 8_000):
        assert rate(optim, step, 10_000) == 2e-3
    for step in (8_001, 8_500, 9_000, 9_999, 10_000):
        assert rate(optim, step, 10_000) == pytest.approx(2e-3 * (1 - math.sqrt((step - 8_000) / 2_000)), abs=1e-15)


def test_only_the_last_peak_of_the_phases_has_a_decay() -> None:
    phases = [
        Phase(seq_length=8, global_batch_size=1, steps=10),
        Phase(seq_length=8, global_batch_size=1, steps=10, learning_rate=0.5, warmup_steps=2),
        Phase(seq_length=16, global_batch_size=1, steps=10),
    ]
    optim = AdamW(learning_rate=1.0, lr_schedule="warmup_stable_decay", num_decay_steps=4, decay_type="linear")
    found = [rate_at(optim, phases, step) for step in range(30)]
    assert found[:10] == [1.0] * 10
    assert found[10:] == [0.0, 0.25, *[0.5] * 15, 0.375, 0.25, 0.125]


def test_a_stable_phase_may_end_before_the_run() -> None:
    optim = AdamW(
        learning_rate=1.0,
        lr_schedule="warmup_stable_decay",
        num_decay_steps=2,
        decay_type="linear",
        lr_decay_steps=6,
        min_lr_ratio=0.5,
    )
    assert [rate(optim, step, 9) for step in range(9)] == [1.0] * 5 + [0.75, *[0.5] * 3]


@pytest.mark.parametrize("steps", [0, -1, 1.5])
def test_decay_steps_are_a_number_or_a_fraction(steps: float) -> None:
    expected = rf"got {steps}, expected a number of steps, or a fraction above 0 and below 1$"
    with pytest.raises(ValueError, match=rf"^invalid optimizer\.num_decay_steps: {expected}"):
        AdamW(learning_rate=1.0, num_decay_steps=steps)


def test_a_decay_before_lr_decay_steps_begins_after_the_warmup() -> None:
    keys = {"learning_rate": 1.0, "lr_schedule": "warmup_stable_decay", "lr_decay_steps": 100, "warmup_steps": 10}
    AdamW(**keys, num_decay_steps=90)
    expected = r"got 91, expected at most 90 steps before step lr_decay_steps"
    with pytest.raises(ValueError, match=rf"^invalid optimizer\.num_decay_steps: {expected}$"):
        AdamW(**keys, num_decay_steps=91)


WSD = ["optimizer.lr_schedule=warmup_stable_decay"]


@pytest.mark.parametrize(
    ("recipe", "most", "cycle"),
    [("bert_base", 990_000, "1000000 steps from step 0"), ("bert_large_lamb", 1_362, "1562 steps from step 7037")],
)
def test_a_decay_that_begins_in_a_warmup_is_refused_in_one_line(recipe: str, most: int, cycle: str) -> None:
    cluster = load_cluster("one_gpu")
    assert check(load(recipe, [*WSD, f"optimizer.num_decay_steps={most}"]), cluster) == []
    assert check(load(recipe, [*WSD, f"optimizer.num_decay_steps={most + 1}"]), cluster) == [
        f"invalid optimizer.num_decay_steps: got {most + 1}, expected at most {most}, the {cycle} without the warmup; "
        "lower it"
    ]


def test_a_shortened_recipe_keeps_the_fraction_of_its_decay() -> None:
    for number, wanted in ((100_000, 100), (0.1, 0.1)):
        recipe = load("bert_base", [*WSD, f"optimizer.num_decay_steps={number}"])
        short = load("bert_base", [*WSD, f"optimizer.num_decay_steps={number}", *shorten(recipe, 1_000)])
        assert short.optimizer.num_decay_steps == wanted


@pytest.mark.parametrize(("steps", "words"), [(0.2, "20% of the steps"), (20_000, "20,000 steps")])
def test_the_decay_is_described_with_its_steps(steps: float, words: str) -> None:
    optim = AdamW(learning_rate=1.0, lr_schedule="warmup_stable_decay", num_decay_steps=steps, decay_type="1-sqrt")
    assert optim.describe_schedule() == f"constant rate, then 1-sqrt decay over the last {words}"
