"""Ablation tables from the literature: consistent settings, computed orders, and trials that are not repeated."""

import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from orchestration import cli, figures
from orchestration.config import Recipe, flatten, load
from orchestration.jobs import JobFlags
from orchestration.jobs import ablation as table
from orchestration.launch import group as launch
from orchestration.progress import ignore_progress
from orchestration.reports.ablations import Ablation, AblationRow, ScalingLadder
from orchestration.reports.ablations import page as table_page
from orchestration.reports.ablations import synthetic_language as table_text
from orchestration.reports.ablations.ablation import DifferentClaim, EqualClaim, LowerClaim, Measure
from orchestration.reports.ablations.tables import TABLES, ablation_from_name
from orchestration.tracking import runs as track
from preprocessing.errors import BadInput
from tests import family
from training import meter
from training.optimizers import schedule
from training.specs import BatchWork

SMALL = Ablation(
    name="small",
    title="Two nets",
    paper="A paper, 2019",
    stub="loss",
    rows={
        "none": AblationRow(
            recipe="albert_base",
            overrides=("data.packing.negatives=none", "losses=[{kind: masked_tokens}]"),
            paper={"SOP": 53.3},
        ),
        "SOP": AblationRow(recipe="albert_base", paper={"SOP": 86.5}),
    },
    columns={
        "MLM": Measure(kind="masked", of="none", means="hidden tokens"),
        "SOP": Measure(kind="pairs", of="SOP", means="order"),
    },
    claims=(LowerClaim("SOP", ("none",), ("SOP",)), EqualClaim("MLM", 0.1)),
    varies=("data.packing.negatives", "losses"),
    vocab="data.tokenizer={kind: wordpiece, vocab_size: 300}",
    budget={"tiny": ("phases=[{seq_length: 48, global_batch_size: 8, steps: 6}]", "optimizer.warmup_steps=2")},
)
SCORES = {"none": {"MLM": [0.50, 0.52], "SOP": [0.5, 0.6]}, "SOP": {"MLM": [0.51, 0.53], "SOP": [0.8, 0.9]}}
SUMMARY = {
    "scores": SCORES,
    "rests_on": {"MLM": "9 tokens", "SOP": "8 pairs"},
    "steps": 6,
    "rows_of_a_step": 8,
    "tokens_of_a_row": 48,
    "text": ["mini_world"],
    "recipes": ["albert_base_tiny"],
}


@pytest.fixture(autouse=True)
def limit_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_text, "NUM_DOCUMENTS", 120)


def plan_table(one: Ablation, out: Path, *overrides: str, seeds: int = 1, **flags) -> table.AblationPlan:
    return table.plan(
        one, JobFlags(recipe=one.name, overrides=overrides, output_dir=out, **{"scale": "tiny"} | flags), seeds
    )


# Settings


@pytest.mark.parametrize("one", TABLES.values(), ids=TABLES)
def test_measures_and_claims_name_existing_rows_and_columns(one: Ablation) -> None:
    for claim in one.claims:
        assert claim.column in one.columns
        assert set(claim.lower + claim.higher if isinstance(claim, LowerClaim) else claim.rows) <= set(one.rows)
    assert all(
        measure.of in one.rows for measure in one.columns.values() if measure.kind not in ("task", "rise", "validation")
    )


def recipes_by_row(one: Ablation, out: Path, *overrides: str, scale: str = "tiny") -> dict[str, Recipe]:
    """Return the recipe of each table row."""
    flags = JobFlags(recipe=one.name, overrides=overrides, output_dir=out, scale=scale)
    return {label: table.job_of(one, row, flags).recipe for label, row in one.rows.items()}


def keys_of(recipe: Recipe) -> dict[str, Any]:
    """Return the keys of a recipe that change what is learned, e.g. `model.num_hidden_layers`."""
    return dict(flatten(recipe.science))


def differing_keys(*rows: Recipe) -> set[str]:
    """Return the keys in which these recipes differ."""
    found = [keys_of(row) for row in rows]
    return {key for one in found for key in one if len({str(other.get(key)) for other in found}) > 1}


@pytest.mark.parametrize("scale", ["tiny", "small"])
@pytest.mark.parametrize("one", TABLES.values(), ids=TABLES)
def test_rows_differ_only_in_the_keys_that_the_paper_varies(one: Ablation, scale: str, tmp_path: Path) -> None:
    found = recipes_by_row(one, tmp_path, scale=scale)
    keys = differing_keys(*found.values())
    assert all(any(f"{key}.".startswith(f"{varied}.") for key in keys) for varied in one.varies)
    assert not {key for key in keys if not any(f"{key}.".startswith(f"{varied}.") for varied in one.varies)}
    assert len({recipe.hash for recipe in found.values()}) == len(found)  # no two table rows have the same recipe


def test_every_row_has_a_trial_per_seed_on_the_same_text(tmp_path: Path) -> None:
    plan = plan_table(SMALL, tmp_path, seeds=2)
    assert [cell.name for cell in plan.cells] == ["none, seed 0", "SOP, seed 0", "none, seed 1", "SOP, seed 1"]
    assert len({cell.job.plan.run.folder for cell in plan.cells}) == 4
    assert len({cell.job.corpus.sources[0].path for cell in plan.cells}) == 1
    assert {cell.job.cluster.count_workers(cell.job.recipe) for cell in plan.cells} == {1}


@pytest.mark.parametrize("name", ["size-ladder", "adam-eps"])
def test_tables_on_real_text_use_the_demo_corpus(name: str, tmp_path: Path) -> None:
    one = TABLES[name]
    job = table.job_of(one, next(iter(one.rows.values())), JobFlags(recipe=name, output_dir=tmp_path, scale="tiny"))
    assert job.corpus.name == "demo"
    assert job.recipe.data.tokenizer == load(job.recipe.name.removesuffix("_tiny"), scale="tiny").data.tokenizer


@pytest.mark.parametrize("one", TABLES.values(), ids=TABLES)
def test_table_has_the_reported_scores_and_their_source(one: Ablation) -> None:
    assert re.search(r"arXiv:\d{4}\.\d{5}[,;] (tables?|section|README)", one.paper)
    has_none = isinstance(one, ScalingLadder) or one.name == "adam-eps"
    assert has_none or all(row.paper for row in one.rows.values() if row.compute in (0, 1))
    assert all(0 < figure < 100 for row in one.rows.values() for figure in row.paper.values())
    assert bool(one.axis) == bool(one.curves)


@pytest.mark.parametrize("one", TABLES.values(), ids=TABLES)
def test_row_and_column_names_are_valid_in_mlflow(one: Ablation) -> None:
    assert [name for name in (*one.rows, *one.columns) if not re.fullmatch(r"[\w\-. :/]+", name, re.ASCII)] == []


def test_spanbert_masking_schemes_are_compared_on_segment_pairs() -> None:
    """The caption of table 5: all models are trained on two segments with NSP. Table 6 also has one-sequence models."""
    segments = {
        (name, label): (row.data.packing.segments, tuple(loss.kind for loss in row.losses))
        for name in ("spanbert-masking", "spanbert-objectives")
        for label, row in ((label, load(row.recipe)) for label, row in TABLES[name].rows.items())
    }
    of_one = {("spanbert-objectives", "1 sequence"): (1, ("masked_tokens",))}
    of_one[("spanbert-objectives", "1 sequence and SBO")] = (1, ("masked_tokens", "span_boundary"))
    assert {at: found for at, found in segments.items() if found != (2, ("masked_tokens", "sentence_pair"))} == of_one


@pytest.mark.parametrize("name", ["spanbert-masking", "spanbert-objectives"])
def test_spanbert_ablation_stops_halfway_through_its_decay(name: str) -> None:
    """Section 6: the checkpoints at 1.2 million of 2.4 million steps, so the learning rate has decayed to half, not to
    0."""
    for row in TABLES[name].rows.values():
        one = load(row.recipe)
        assert schedule.rate(one.optimizer, one.num_steps, one.num_steps) == pytest.approx(
            one.optimizer.learning_rate / 2
        )


@pytest.mark.parametrize("name", ["size-ladder", "roberta-formats", "spanbert-masking", "spanbert-objectives"])
def test_reported_scores_of_a_table_match_its_recipes(name: str) -> None:
    """These scores were once typed twice, here and in the recipes."""
    keys = {"GLUE": "glue.average", "SQuAD 1.1": "squad.f1", "SQuAD 2": "squad2.f1", "MNLI-m": "glue.mnli_m"}
    keys |= {"SST-2": "glue.sst2", "RACE": "race.accuracy", "MNLI": "glue.mnli_m", "QNLI": "glue.qnli"}
    keys |= {"NewsQA": "newsqa.f1", "TriviaQA": "triviaqa.f1", "coreference": "coreference.f1"}
    for row in TABLES[name].rows.values():
        expected = dict(flatten(load(row.recipe).reported_results))
        shared = {key for key in row.paper if keys.get(key) in expected}
        assert shared
        assert {key: row.paper[key] for key in shared} == {key: expected[keys[key]] for key in shared}


def test_size_ladder_keeps_the_proportions_of_its_recipes(tmp_path: Path) -> None:
    """Hidden sizes are a quarter of the published ones; layers and heads are the published ones. With `--scale` alone,
    all table rows would be equal."""
    one = TABLES["size-ladder"]
    for row, ours in recipes_by_row(one, tmp_path).items():
        full = load(one.rows[row].recipe).model
        assert (full.num_hidden_layers, full.hidden_size, full.num_attention_heads) == (
            ours.model.num_hidden_layers,
            4 * ours.model.hidden_size,
            ours.model.num_attention_heads,
        )
    parameters = [point for point, _ in one.curves[0].points]
    assert parameters == sorted(parameters)


def test_roberta_formats_are_those_of_the_four_recipes(tmp_path: Path) -> None:
    found = recipes_by_row(TABLES["roberta-formats"], tmp_path)
    of_all = differing_keys(found["FULL-SENTENCES"], found["DOC-SENTENCES"])
    assert of_all == {"data.packing.cross_documents", "phases.0.batch_unit"}
    of_pairs = differing_keys(found["SEGMENT-PAIR"], found["SENTENCE-PAIR"])
    assert of_pairs == {"data.packing.unit", "phases.0.batch_unit"}
    for row, one in TABLES["roberta-formats"].rows.items():
        full = load(one.recipe)
        assert found[row].phases[0].batch_unit == full.phases[0].batch_unit
        assert found[row].data.packing == full.data.packing
        assert found[row].model.type_vocab_size == full.model.type_vocab_size


def test_albert_sharing_has_all_combinations_of_tables_3_and_4(tmp_path: Path) -> None:
    found = recipes_by_row(TABLES["albert-sharing"], tmp_path)
    both, four = ("none", "all"), ("none", "all", "attention", "feed_forward")
    assert {(one.model.embedding_size, one.model.parameter_sharing) for one in found.values()} == {
        *((width, shared) for width in (8, 32) for shared in both),
        *((width, shared) for width in (16, 64) for shared in four),
    }
    assert (
        found["E 768: all-shared"].model.table_width == found["E 768: all-shared"].model.hidden_size
    )  # no embedding projection


def test_adam_eps_has_all_combinations_of_epsilon_and_beta2(tmp_path: Path) -> None:
    found = {(one.optimizer.eps, one.optimizer.beta2) for one in recipes_by_row(TABLES["adam-eps"], tmp_path).values()}
    assert found == {(eps, beta2) for eps in (1e-8, 1e-6, 1e-4, 1e-2) for beta2 in (0.98, 0.999)}


# Equal compute


def test_electra_variants_differ_only_in_the_second_loss(tmp_path: Path) -> None:
    found = recipes_by_row(TABLES["electra-compute"], tmp_path)
    of_method = {row.split(":")[0]: one.losses for row, one in found.items()}
    assert [loss.kind for loss in of_method.pop("MLM")] == ["masked_tokens"]
    assert {method: (losses[1].predict, losses[1].predict_at) for method, losses in of_method.items()} == {
        "ELECTRA": ("replaced", "all"),
        "all-tokens MLM": ("original", "all"),
        "replace MLM": ("original", "masked"),
        "ELECTRA 15 percent": ("replaced", "masked"),
    }
    electra = found["ELECTRA: compute 1"]
    assert differing_keys(electra, found["ELECTRA 15 percent: compute 1"]) == {"losses.1.predict_at"}
    assert differing_keys(electra, found["ELECTRA: compute 0.5"]) == {"phases.0.steps"}
    masked = differing_keys(electra, found["MLM: compute 1"])
    assert {key.split(".")[0] for key in masked} == {"losses", "objective", "model", "phases"}
    assert (
        not {"model.num_hidden_layers", "model.hidden_size", "model.num_attention_heads", "model.embedding_size"}
        & masked
    )


@pytest.mark.parametrize("scale", ["tiny", "small"])
def test_rows_of_equal_compute_have_equal_flops(scale: str, tmp_path: Path) -> None:
    one = TABLES["electra-compute"]
    found = recipes_by_row(one, tmp_path, scale=scale)
    flops = {row: table.count_flops(recipe) for row, recipe in found.items()}
    for row, of_row in one.rows.items():
        assert flops[row] == pytest.approx(of_row.compute * flops[one.equal_to], rel=0.005)
    assert found[one.equal_to].num_steps == 2_000


def test_shorter_budget_keeps_the_proportions_of_steps(tmp_path: Path) -> None:
    shorter = ("phases=[{seq_length: 32, global_batch_size: 8, steps: 40}]", "optimizer.warmup_steps=2")
    steps = {row: one.num_steps for row, one in recipes_by_row(TABLES["electra-compute"], tmp_path, *shorter).items()}
    assert (steps["MLM: compute 1"], steps["MLM: compute 0.25"]) == (40, 10)
    assert steps["all-tokens MLM: compute 1"] < steps["ELECTRA: compute 1"] < 40


def test_equal_compute_requires_one_phase(tmp_path: Path) -> None:
    phases = (
        "phases=[{seq_length: 32, global_batch_size: 8, steps: 400}, "
        "{seq_length: 64, global_batch_size: 8, steps: 400}]"
    )
    with pytest.raises(BadInput, match="got 2 phases, expected 1 in a table of equal compute"):
        recipes_by_row(TABLES["electra-compute"], tmp_path, phases)


@pytest.mark.parametrize("one", TABLES.values(), ids=TABLES)
def test_each_fact_of_a_table_can_be_computed(one: Ablation, tmp_path: Path) -> None:
    recipe = recipes_by_row(one, tmp_path)[next(iter(one.rows))]
    assert all(table.FACTS[fact](recipe) > 0 for fact in one.facts)
    assert not one.axis or one.axis in one.facts


@pytest.mark.parametrize("method", ["MLM", "ELECTRA", "ELECTRA 15 percent", "replace MLM", "all-tokens MLM"])
def test_flops_match_those_of_the_training_loop(method: str, tmp_path: Path) -> None:
    """A second loss that predicts tokens has its own targets, which the loop counts too."""
    recipe = recipes_by_row(TABLES["electra-compute"], tmp_path)[f"{method}: compute 1"]
    batches = family.loader(recipe, steps=4).at(0)
    losses = recipe.losses
    targets = sum(loss.count(batch) for batch in batches for loss in losses if loss.names_tokens)
    tokens = sum(int(batch["lengths"].sum()) for batch in batches)
    of_step = table.count_flops(recipe) / recipe.num_steps
    work = BatchWork(tokens=32 * 64, squares=32 * 64**2, targets=0)
    projected = (of_step - meter.flops(recipe.model, 800, work)) / (6 * 800 * recipe.model.table_width)
    assert projected / work.tokens == pytest.approx(targets / tokens, rel=0.05)


def test_text_from_data_replaces_the_generated_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A text.\n")
    plan = plan_table(SMALL, tmp_path, data=(str(tmp_path / "text.txt"),))
    assert {cell.job.corpus.name for cell in plan.cells} == {"text"}
    assert {cell.job.recipe.data.tokenizer.kind for cell in plan.cells} == {"unigram"}  # the recipe's own tokenizer


def test_unknown_table_name_suggests_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"got 'albert_sp', expected one of .*did you mean albert-sp"):
        ablation_from_name("albert_sp")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ablation albert", "invalid table: got 'albert', expected one of"),
        (
            "ablation albert-sp --scale huge --dry-run",
            "invalid --scale: got 'huge', expected one of tiny, small; use one of them",
        ),
        ("ablation albert-sp --num-seeds 0", "invalid --num-seeds: got '0', expected a number of at least 1"),
        (
            "ablation albert-sp model.num_hidden_layer=3 --dry-run",
            "invalid key: got model.num_hidden_layer, expected a key of model",
        ),
        ("ablation albert-sp --data nowhere.txt --dry-run", "nowhere.txt"),
        (
            "ablation albert-sp --recipe gpt2 --dry-run",
            "invalid --recipe: got gpt2 with albert-sp, expected it with scaling only",
        ),
        ("ablation scaling --recipe gtp2 --dry-run", "invalid recipe: got gtp2, expected"),
    ],
)
def test_invalid_ablation_command_gives_a_one_line_error(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(line)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_command_without_a_name_lists_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ablation", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {*TABLES, "next"}


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_table_without_enough_gpus_is_refused_before_its_corpus(
    dry_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestration.planning.run_estimate.list_gpus", list)
    assert (
        cli.main(["ablation", "albert-sp", "--cluster", "8xh100", "--output-dir", str(tmp_path / "out"), *dry_run]) == 4
    )
    assert "need 1 GPUs, this machine has none" in capsys.readouterr().err
    # the generated text is needed for the plan
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["text_of_tables"]


def test_regenerated_text_keeps_its_size_and_time(tmp_path: Path) -> None:
    """Its modification time once was its creation time, so finished trials were repeated."""
    first, second = (table_text.write(tmp_path / name).stat() for name in ("first", "second"))
    assert (first.st_size, first.st_mtime_ns) == (second.st_size, second.st_mtime_ns)


# Results


def test_reproduced_order_is_reported() -> None:
    message = "The order of the paper's rows was reproduced: 1 of 1 claims hold, 0 significantly (p < 0.05)."
    assert table_page.summarize_claims(SMALL, SCORES) == message
    order, alike = table_page.evaluate_claims(SMALL, SCORES)
    assert str(order) == "SOP: none < SOP: yes (by 0.300; in 2 of 2 seeds; p = 0.250)"
    assert str(alike).startswith("MLM: all within 0.1: yes (they differ by 0.010; in 2 of 2 seeds; p ")


def test_order_that_was_not_reproduced_is_reported() -> None:
    turned = {"none": SCORES["SOP"], "SOP": SCORES["none"] | {"MLM": [0.8, 0.3]}}
    assert table_page.summarize_claims(SMALL, turned) == (
        "The order of the paper's rows was not reproduced: 0 of 1 claims hold, 0 significantly (p < 0.05). "
        "These claims fail: SOP: none < SOP."
    )
    order, alike = table_page.evaluate_claims(SMALL, turned)
    assert (order.holds, order.seeds, order.of) == (False, 0, 2)
    assert (alike.holds, alike.seeds) == (True, 0)  # the mean of two values that deviate in opposite directions


def test_failed_equality_claim_is_reported_separately_from_the_order() -> None:
    unlike = SCORES | {"none": SCORES["none"] | {"MLM": [0.1, 0.2]}}
    assert table_page.summarize_claims(SMALL, unlike) == (
        "The order of the paper's rows was reproduced: 1 of 1 claims hold, 0 significantly (p < 0.05). "
        "Rows are equal in the paper but differ here: MLM: all within 0.1."
    )


def test_equal_scores_do_not_reproduce_an_order() -> None:
    same = {row: {"MLM": [0.5], "SOP": [0.5]} for row in SMALL.rows}
    assert [one.holds for one in table_page.evaluate_claims(SMALL, same)] == [False, True]


def test_every_lower_row_must_be_below_every_higher_row() -> None:
    three = replace(SMALL, claims=(LowerClaim("SOP", ("none", "NSP"), ("SOP",)),))
    scores = {row: {"SOP": [value]} for row, value in {"none": 0.5, "NSP": 0.8, "SOP": 0.7}.items()}
    assert not table_page.evaluate_claims(three, scores)[0].holds
    scores["NSP"]["SOP"] = [0.6]
    assert table_page.evaluate_claims(three, scores)[0].holds


def test_equality_claim_may_cover_some_rows() -> None:
    scores = {row: {"SOP": [value]} for row, value in {"none": 0.5, "NSP": 0.51, "SOP": 0.7}.items()}
    some, every = (replace(SMALL, claims=(EqualClaim("SOP", 0.02, rows),)) for rows in (("none", "NSP"), ()))
    assert str(table_page.evaluate_claims(some, scores)[0]).startswith(
        "SOP: none, NSP within 0.02: yes (they differ by 0.010"
    )
    assert not table_page.evaluate_claims(every, scores)[0].holds


def test_difference_claim_is_evaluated() -> None:
    scores = {row: {"loss": [value]} for row, value in {"1e-8": 4.0, "1e-6": 3.9, "1e-2": 5.0}.items()}
    one = replace(SMALL, claims=(DifferentClaim("loss", 0.5), DifferentClaim("loss", 0.5, ("1e-8", "1e-6"))))
    every, two = table_page.evaluate_claims(one, scores)
    assert str(every) == "loss: all more than 0.5 apart: yes (they differ by 1.100; in 1 of 1 seeds; not tested)"
    assert str(two) == "loss: 1e-8, 1e-6 more than 0.5 apart: no (they differ by 0.100; in 0 of 1 seeds; not tested)"
    assert (
        "1 of 2 claims hold, none tested. These claims fail: loss: 1e-8, 1e-6 more than 0.5 apart"
        in table_page.summarize_claims(one, scores)
    )


def test_claim_is_tested_over_seeds_and_questions() -> None:
    """An order of three means once counted as reproduced, regardless of the variation over seeds and of small
    samples."""
    sure = {
        "none": {"SOP": [0.50, 0.51, 0.52], "MLM": [0.50, 0.51, 0.50]},
        "SOP": {"SOP": [0.70, 0.72, 0.71], "MLM": [0.51, 0.50, 0.50]},
    }
    order, alike = table_page.evaluate_claims(SMALL, sure)
    assert (order.is_significant, alike.is_significant) == (True, True)
    assert order.p == pytest.approx(
        ttest_rel(*(sure[row]["SOP"] for row in ("SOP", "none")), alternative="greater").pvalue
    )
    assert "1 of 1 claims hold, 1 significantly (p < 0.05)" in table_page.summarize_claims(SMALL, sure)
    few, many = (table_page.evaluate_claims(SMALL, sure, {"SOP": number})[0] for number in (20, 2_000))
    assert (few.is_significant, many.is_significant) == (False, True)
    unsure = sure | {"SOP": {"SOP": [0.9, 0.55, 0.4], "MLM": [0.5] * 3}}
    verdict = table_page.evaluate_claims(SMALL, unsure)[0]
    assert (verdict.holds, verdict.is_significant) == (True, False)
    page = table_page.markdown(SMALL, SUMMARY | {"scores": sure, "questions": {"SOP": 20}})
    assert "p: one-sided paired t test over the seeds" in page
    assert "1 of 1 claims hold, 0 significantly" in page


def test_claim_over_several_pairs_has_the_largest_p_value() -> None:
    rows = {"none": [0.50, 0.51, 0.52], "NSP": [0.6, 0.75, 0.68], "SOP": [0.70, 0.72, 0.71]}
    scores = {row: {"SOP": values} for row, values in rows.items()}
    three = replace(
        SMALL,
        claims=(LowerClaim("SOP", ("none", "NSP"), ("SOP",)), DifferentClaim("SOP", 0.05), EqualClaim("SOP", 0.05)),
    )
    below, apart, alike = table_page.evaluate_claims(three, scores)
    least = ttest_rel(rows["SOP"], rows["NSP"], alternative="greater").pvalue
    assert below.p == pytest.approx(least)
    assert (apart.is_significant, alike.is_significant) == (True, False)


def test_few_claims_are_significant_without_an_effect() -> None:
    rng = np.random.default_rng(0)
    found = [
        table_page.evaluate_claims(
            SMALL, {row: {"SOP": list(rng.normal(0.5, 0.05, 3)), "MLM": [0.5] * 3} for row in SMALL.rows}
        )[0]
        for _ in range(400)
    ]
    assert sum(one.is_significant for one in found) <= 30  # 20 are expected by chance
    assert sum(one.holds for one in found) > 150


def test_page_shows_units_facts_and_training_length() -> None:
    loss = {"MLM": Measure(kind="loss", of="none", means="a loss")}
    one = replace(SMALL, columns=loss, claims=(), facts=("parameters", "FLOPs"), note="A note.")
    scores = {"none": {"MLM": [3.0, math.inf]}, "SOP": {"MLM": [4.0, 5.0]}}
    facts = {row: {"parameters": 12_345, "FLOPs": 2.34e12} for row in one.rows}
    page = table_page.markdown(one, SUMMARY | {"scores": scores, "facts": facts, "steps": [6, 1_200]})
    assert (
        "After A paper, 2019. Nats, mean +- standard deviation over 2 seeds; the scores of the paper are in percent."
        in page
    )
    assert "| loss | parameters | FLOPs | MLM (nats) | paper: SOP |" in page
    assert "| none | 12,345 | 2.3e12 | inf | 53.3 |" in page
    assert "| SOP | 12,345 | 2.3e12 | 4.500 +- 0.707 | 86.5 |" in page
    assert "Training of each row: 6 to 1,200 steps of 8 sequences" in page
    assert page.endswith("\n\nA note.\n")


def test_page_shows_means_and_deviations_beside_reported_scores() -> None:
    page = table_page.markdown(SMALL, SUMMARY)
    assert "| loss | MLM | SOP | paper: SOP |\n|---|---|---|---|\n" in page
    assert "| none | 0.510 +- 0.014 | 0.550 +- 0.071 | 53.3 |\n" in page
    assert "over 2 seeds" in page
    assert "order (8 pairs)" in page
    assert "**The order of the paper's rows was reproduced: 1 of 1 claims hold, 0 significantly (p < 0.05).**" in page


def test_single_seed_has_no_deviation() -> None:
    one = {row: {name: values[:1] for name, values in of_row.items()} for row, of_row in SCORES.items()}
    page = table_page.markdown(SMALL, SUMMARY | {"scores": one})
    assert "| none | 0.500 | 0.500 | 53.3 |" in page
    assert "+-" not in page
    assert set(table_page.means(one)) == {"none/MLM", "none/SOP", "SOP/MLM", "SOP/SOP"}


def test_figure_has_a_bar_per_row_and_column_and_a_dot_per_seed() -> None:
    (axes,) = figures.plot_groups("Two nets", table_page.by_column(SMALL, SCORES)).axes
    assert [round(bar.get_height(), 2) for group in axes.containers for bar in group] == [0.51, 0.55, 0.52, 0.85]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["MLM", "SOP"]
    assert [list(line.get_ydata()) for line in axes.lines[:2]] == [[0.50, 0.52], [0.5, 0.6]]


def test_columns_with_different_units_have_separate_panels() -> None:
    scores = {"MLM": {"none": [0.5], "SOP": [0.6]}, "loss": {"none": [3.0], "SOP": [2.0]}}
    figure = figures.plot_groups("Two nets", scores, {"MLM": "accuracy", "loss": "nats"})
    left, right = figure.axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("accuracy", "nats")
    assert (left.get_ylim()[1], right.get_ylim()[1] > 2) == (1, True)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["none", "SOP"]


def test_table_with_an_axis_is_drawn_as_curves_beside_those_of_the_paper() -> None:
    one = TABLES["size-ladder"]
    scores = {row: {name: [place, place + 1.0] for name in one.columns} for place, row in enumerate(one.rows)}
    facts = {row: {"parameters": 100.0 * 4**place, "FLOPs": 1.0} for place, row in enumerate(one.rows)}
    panels = table_page.lines(one, scores, facts)
    assert list(panels) == ["loss (nats)", "MLM (accuracy)", "NSP (accuracy)", "paper: GLUE (test)"]
    assert panels["loss (nats)"] == {
        "BERT": [(100.0, [0, 1.0]), (400.0, [1, 2.0]), (1600.0, [2, 3.0]), (6400.0, [3, 4.0])]
    }
    figure = figures.panels(one.title, "parameters", panels)
    assert [axes.get_xscale() for axes in figure.axes] == ["log"] * 4
    assert list(figure.axes[0].lines[0].get_ydata()) == [0.5, 1.5, 2.5, 3.5]
    assert list(figure.axes[3].lines[0].get_ydata()) == [64.2, 65.8, 71.2, 73.5]


def test_each_objective_has_a_line_over_compute() -> None:
    one = TABLES["electra-compute"]
    scores = {row: {name: [0.5] for name in one.columns} for row in one.rows}
    facts = {row: {"parameters": 1.0, "FLOPs": of_row.compute} for row, of_row in one.rows.items()}
    panels = table_page.lines(one, scores, facts)
    assert list(panels["next_sentence (accuracy)"]) == [
        "ELECTRA",
        "all-tokens MLM",
        "replace MLM",
        "ELECTRA 15 percent",
        "MLM",
    ]
    assert [place for place, _ in panels["order (accuracy)"]["MLM"]] == [0.25, 0.5, 1.0]
    assert list(panels["paper: GLUE (dev)"]) == ["ELECTRA small", "BERT small"]


# Trials


def test_trials_describe_their_state(tmp_path: Path) -> None:
    plan = plan_table(SMALL, tmp_path, seeds=2)
    first, second, third, _ = plan.cells
    for stage in (first.job.plan.run, first.stage, second.job.plan.run):
        stage.folder.mkdir(parents=True)
        stage.finish()
    third.job.plan.run.folder.mkdir(parents=True)
    message = [cell.describe().split(" (")[0] for cell in plan.cells]
    assert message == [
        "none, seed 0: done, skipped",
        "SOP, seed 0: trained, to be measured",
        "none, seed 1: incomplete, resumes",
        "SOP, seed 1: to do",
    ]


def test_changed_claims_keep_the_trials_of_a_table(tmp_path: Path) -> None:
    before, after = plan_table(SMALL, tmp_path), plan_table(replace(SMALL, claims=()), tmp_path)
    assert before.stage.folder != after.stage.folder
    assert [cell.stage for cell in before.cells] == [cell.stage for cell in after.cells]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_table_is_made_once_and_nested_in_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_table(SMALL, tmp_path)
    summary = table.run_ablation(plan, ignore_progress)
    assert all(0 <= score <= 1 for row in summary["scores"].values() for (score,) in row.values())
    page = (plan.stage.folder / table.PAGE).read_text()
    assert page == table_page.markdown(SMALL, summary)

    place = track.tracking_store(tmp_path)
    client, parent = track.client_of(place.uri), track.existing_run(plan.stage.folder)
    run = client.get_run(parent.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics == table_page.means(summary["scores"])
    assert {file.path for file in client.list_artifacts(parent.run_id)} == {"figures", "table.json", "table.md"}
    nested = client.search_runs(
        [run.info.experiment_id], f"tags.mlflow.parentRunId = '{parent.run_id}'", order_by=["tags.row"]
    )
    assert [one.info.run_name for one in nested] == ["SOP, seed 0", "none, seed 0"]
    assert [one.data.metrics["table/SOP"] for one in nested] == [
        *summary["scores"]["SOP"]["SOP"],
        *summary["scores"]["none"]["SOP"],
    ]

    def never(*given, **named):
        raise AssertionError("a finished trial was repeated")

    monkeypatch.setattr(launch, "pretrain", never)
    assert table.run_ablation(plan, ignore_progress) == summary
    (plan.stage.folder / "stage.json").unlink()
    (plan.cells[0].stage.folder / "stage.json").unlink()  # one trial is measured again, and none is trained
    assert table.run_ablation(plan, ignore_progress) == summary
    assert track.existing_run(plan.stage.folder) == parent


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_error_of_a_trial_ends_the_table(tmp_path: Path) -> None:
    plan = plan_table(
        SMALL, tmp_path, "cluster.num_workers=9", "phases=[{seq_length: 48, global_batch_size: 9, steps: 6}]"
    )
    with pytest.raises(Exception, match="9 workers"):
        table.run_ablation(plan, ignore_progress)
    assert (
        track.client_of(track.tracking_store(tmp_path).uri)
        .get_run(track.existing_run(plan.stage.folder).run_id)
        .info.status
        == "FAILED"
    )
