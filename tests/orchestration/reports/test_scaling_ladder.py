"""The scaling ladder: its budgets, the exponents that it recovers from known laws, its page and its figure."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestration import cli, figures
from orchestration.config import compute_digest, load
from orchestration.jobs import JobFlags
from orchestration.jobs import ablation as table
from orchestration.planning.compute_optimal import APPROACHES
from orchestration.reports.ablations import page as table_page
from orchestration.reports.ablations import tables
from orchestration.reports.ablations.scaling import SCALING, computes
from orchestration.reports.ablations.scaling_law import Estimate, LadderRun, fit_law
from orchestration.tracking import runs as track
from preprocessing.errors import BadInput

BUDGETS = (1e12, 3e12, 9e12, 27e12)


def make_runs(exponent: float = 0.5, noise: float = 0.0, seed: int = 0, seeds: int = 1) -> list[LadderRun]:
    """Return a ladder whose loss is a parabola with the minimum at N = 0.09 C^0.5 for 1e12 FLOPs."""
    rng, runs = np.random.default_rng(seed), []
    for place, flops in enumerate(BUDGETS):
        optimum = 9e4 * (flops / 1e12) ** exponent
        for step in range(6):
            size = 9e4 * 1.7 ** (place + step - 2.5)
            for _ in range(seeds):
                loss = 3 * (flops / 1e12) ** -0.05 + 0.06 * math.log(size / optimum) ** 2 + rng.normal(0, noise)
                runs.append(LadderRun(flops, size, flops / (6 * size), flops, loss))
    return runs


# The law


@pytest.mark.parametrize("exponent", [0.35, 0.5, 0.73])
def test_law_recovers_the_exponents_of_runs_without_noise(exponent: float) -> None:
    law = fit_law(make_runs(exponent))
    assert law.parameters is not None
    assert law.tokens is not None
    assert law.loss is not None
    assert law.predicted is not None
    assert law.parameters.value == pytest.approx(exponent, abs=1e-6)
    assert law.parameters.interval == pytest.approx((exponent, exponent), abs=1e-6)
    assert law.tokens.value == pytest.approx(1 - exponent, abs=1e-6)
    assert law.loss.value == pytest.approx(-0.05, abs=1e-6)
    assert law.predicted.value == pytest.approx(9e4 * 270**exponent, rel=1e-5)
    assert law.next_flops == pytest.approx(270e12)
    assert law.coefficient * 1e12**exponent == pytest.approx(9e4, rel=1e-5)


def test_intervals_contain_the_exponent_of_noisy_runs_as_often_as_they_say() -> None:
    """The noise is 0.01 nats. 57 of 60 are expected, and fewer than 50 have a probability of 0.01 %."""
    laws = [fit_law(make_runs(noise=0.01, seed=seed)) for seed in range(60)]
    intervals = [law.parameters.interval for law in laws if law.parameters and law.parameters.interval]
    assert len(intervals) == 60
    assert sum(low <= 0.5 <= high for low, high in intervals) >= 50
    assert np.median([high - low for low, high in intervals]) < 0.12


def test_more_seeds_make_the_interval_narrower() -> None:
    few, many = (fit_law(make_runs(noise=0.01, seeds=seeds)).metrics() for seeds in (1, 8))
    width, narrow = (one["exponent/parameters/high"] - one["exponent/parameters/low"] for one in (few, many))
    assert narrow < 0.7 * width


def test_law_recovers_the_exponent_of_the_parametric_loss() -> None:
    """The loss of Chinchilla is no parabola, and the sizes are not centered, so the exponent is not exact."""
    refitted = APPROACHES[-1]
    assert refitted.loss is not None
    sizes = [
        (flops, refitted.parameters(flops) * ratio) for flops in (1e19, 1e20, 1e21) for ratio in (0.3, 0.5, 1, 2, 3)
    ]
    runs = [
        LadderRun(flops, size, flops / (6 * size), flops, refitted.loss.predict(size, flops / (6 * size)))
        for flops, size in sizes
    ]
    law = fit_law(runs)
    assert law.parameters is not None
    assert law.parameters.value == pytest.approx(refitted.exponent, abs=0.01)


def test_law_is_the_same_each_time() -> None:
    assert fit_law(make_runs(noise=0.01)) == fit_law(make_runs(noise=0.01))


def test_runs_that_diverged_and_budgets_with_few_sizes_are_left_out() -> None:
    runs = make_runs()
    diverged = [replace(run, loss=math.nan) if place == 0 else run for place, run in enumerate(runs)]
    assert [len(one.runs) for one in fit_law(diverged).profiles] == [5, 6, 6, 6]
    assert [one.flops for one in fit_law(runs[:3] + runs[6:]).profiles] == pytest.approx(BUDGETS[1:])


def test_budget_without_a_minimum_inside_its_sizes_is_not_part_of_the_law() -> None:
    runs = make_runs()
    tilted = [replace(run, loss=3 - 0.1 * math.log(run.parameters)) if run.budget == 1e12 else run for run in runs]
    low = [replace(run, parameters=run.parameters * 30) if run.budget == 3e12 else run for run in tilted]
    high = [replace(run, loss=-run.loss) if run.budget == 9e12 else run for run in low]
    moved = [replace(run, parameters=run.parameters, loss=math.log(run.parameters / 9e7) ** 2) for run in runs[:6]]
    assert fit_law(moved).profiles[0].why_not == "the minimum is above the largest size"
    shifted = [replace(run, loss=math.log(run.parameters / 9) ** 2) for run in runs[:6]]
    assert fit_law(shifted).profiles[0].why_not == "the minimum is below the smallest size"
    law = fit_law(high)
    assert law.profiles[2].why_not == "the parabola has no minimum"
    assert law.values()["budgets"][2]["parameters"] is None
    assert len(law.used) <= 2


def test_law_needs_two_budgets_with_a_minimum() -> None:
    law = fit_law(make_runs()[:6])
    assert law.parameters is None
    assert law.metrics() == {}
    assert law.describe() == (
        "No exponent: 1 of 1 budgets have a minimum between their smallest and largest size, and two are needed."
    )
    assert fit_law([]).describe().startswith("No exponent: 0 of 0")


def test_exponent_has_no_interval_if_the_noise_hides_the_minima() -> None:
    laws = [fit_law(make_runs(noise=0.2, seed=seed)) for seed in range(30)]
    unsure = [law for law in laws if law.parameters and law.failed > 0.025]
    assert unsure
    for law in unsure:
        assert law.parameters is not None
        assert law.parameters.interval is None
        assert "(no interval); Chinchilla has 0.49. A budget has no minimum in" in law.describe()
        assert "exponent/parameters/low" not in law.metrics()


# The ladder


@pytest.mark.parametrize("scale", ["tiny", "small"])
def test_rows_of_a_budget_have_equal_flops_and_sizes_that_grow(scale: str, tmp_path: Path) -> None:
    flags = JobFlags(recipe="scaling", output_dir=tmp_path, scale=scale)
    recipes = {label: table.job_of(SCALING, row, flags).recipe for label, row in SCALING.rows.items()}
    whole = table.count_flops(recipes[SCALING.equal_to])
    by_budget: dict[float, list[float]] = {}
    for label, recipe in recipes.items():
        assert table.count_flops(recipe) == pytest.approx(SCALING.rows[label].compute * whole, rel=0.01)
        assert recipe.num_steps > 2 * recipe.optimizer.warmup_steps
        by_budget.setdefault(SCALING.rows[label].compute, []).append(table.FACTS["parameters"](recipe))
    assert len(by_budget) == 4
    for sizes in by_budget.values():
        assert sizes == sorted(sizes)
        assert len(sizes) == 6
    assert all(1.2 < later / sooner < 3 for sizes in by_budget.values() for sooner, later in pairwise(sizes))


@pytest.mark.parametrize("recipe", ["bert_base", "roberta_base", "t5_small", "xlnet_base", "spanbert_base"])
def test_ladder_can_have_another_recipe(recipe: str, tmp_path: Path) -> None:
    """RoBERTa has an offset of positions, T5 has no table of them, and SpanBERT has two losses with logits."""
    ladder = tables.with_recipe(SCALING, recipe)
    flags = JobFlags(recipe="scaling", output_dir=tmp_path, scale="tiny")
    rows = list(ladder.rows.values())
    first, last = (table.job_of(ladder, row, flags).recipe for row in (rows[0], rows[-1]))
    assert first.model.kind == load(recipe).model.kind
    assert (first.model.num_hidden_layers, first.model.hidden_size) == (1, 8)
    assert (last.model.num_hidden_layers, last.model.hidden_size) == (3, 40)
    assert compute_digest(ladder) != compute_digest(SCALING)  # the tables have different directories


def test_other_tables_cannot_have_another_recipe() -> None:
    with pytest.raises(BadInput, match="invalid --recipe: got bert_base with albert-sp"):
        tables.with_recipe(tables.TABLES["albert-sp"], "bert_base")


def make_summary(noise: float = 0.003) -> dict[str, Any]:
    """Return the results of a ladder that follows a law."""
    runs = make_runs(noise=noise)
    rows = dict(zip(SCALING.rows, runs, strict=True))
    facts = {
        label: {"parameters": run.parameters, "tokens": run.tokens, "FLOPs": run.flops} for label, run in rows.items()
    }
    return {
        "scores": {label: {"loss": [run.loss]} for label, run in rows.items()},
        "facts": facts,
        "rests_on": {"loss": "the validation text"},
        "steps": [6, 900],
        "rows_of_a_step": 8,
        "tokens_of_a_row": 64,
        "text": ["demo"],
        "recipes": ["gpt2_tiny"],
        "epochs": 0.46,
    }


def test_page_has_the_exponents_and_their_limits() -> None:
    page, law = table_page.markdown(SCALING, make_summary()), fit_law(make_runs(noise=0.003))
    assert "from one seed; the exponent of the paper is 0.49." in page
    assert "| budget and size | parameters | tokens | FLOPs | loss (nats) |" in page
    assert re.fullmatch(
        r"Optimal parameters grow as C\^0\.\d\d \(95 % interval 0\.\d\d to 0\.\d\d\); Chinchilla has 0\.49\.",
        law.describe(),
    )
    assert f"**{law.describe()}**" in page
    assert "| FLOPs | optimal parameters | optimal tokens | tokens per parameter | loss at the optimum |" in page
    assert "* Prediction for 2.7e14 FLOPs: " in page
    assert "The runs have 1e12 to 2.7e13 FLOPs and at most 0.46 epochs of the text." in page
    assert "claims" not in page


def test_page_names_the_budgets_without_a_minimum() -> None:
    summary = make_summary()
    for label, row in SCALING.rows.items():
        if row.compute < 1:
            summary["scores"][label] = {"loss": [float(np.log(summary["facts"][label]["parameters"]))]}
    page = table_page.markdown(SCALING, summary)
    assert "**No exponent: 1 of 4 budgets have a minimum" in page
    assert "Prediction" not in page
    summary["scores"] = {label: {"loss": [math.inf]} for label in SCALING.rows}
    assert "**No exponent: 0 of 0 budgets" in table_page.markdown(SCALING, summary)


def test_figure_has_a_profile_for_each_budget_and_the_law(tmp_path: Path) -> None:
    summary = make_summary()
    left, right = table._picture(SCALING, summary).axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        *("1e12 FLOPs", "3e12 FLOPs", "9e12 FLOPs", "2.7e13 FLOPs")
    ]
    assert len(left.lines) == 12  # points, parabola and minimum of each budget
    assert len(right.collections) == 1  # the interval
    assert (right.get_xscale(), right.get_yscale()) == ("log", "log")
    summary["scores"] = {label: {"loss": [math.inf]} for label in SCALING.rows}
    table._picture(SCALING, summary).savefig(tmp_path / "empty.png")
    figures.plot_profiles("x", [figures.ProfileCurve("c", [(1, 2)], [(1, 2)], None)], [], []).savefig(
        tmp_path / "one.png"
    )


def test_tables_of_papers_have_no_law() -> None:
    one = tables.TABLES["albert-sp"]
    assert table_page.find_law(one, {}, {}) is None
    assert (one.num_seeds, SCALING.num_seeds) == (3, 1)


def test_estimate_shows_its_interval() -> None:
    assert Estimate(12_345.6, (11_000.0, 13_000.0)).describe(",.0f") == "12,346 (95 % interval 11,000 to 13,000)"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_command_trains_a_ladder_and_ends_with_its_table_and_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two budgets of four sizes, a few steps each, on the demo corpus."""
    sizes = ("1L 2W", "1L 3W", "2L 4W", "3L 5W")
    rows = {label: row for label, row in SCALING.rows.items() if row.compute > 0.3 and label.endswith(sizes)}
    small = replace(SCALING, rows=rows)
    assert len(rows) == 8
    monkeypatch.setitem(tables.TABLES, "scaling", small)
    steps = "phases=[{seq_length: 16, global_batch_size: 4, steps: 30}]"
    options = ["--progress", "none", "--json", "--output-dir", str(tmp_path)]
    assert cli.main(["ablation", "scaling", steps, "optimizer.warmup_steps=2", *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["law"]["budgets"]) == 2
    assert answer["outcome"].startswith(("Optimal parameters grow as C^", "No exponent: "))
    assert 0 < answer["epochs"] < 1
    folder = Path(answer["folder"])
    page = (folder / table.PAGE).read_text()
    assert page.startswith("# A scaling law")
    assert (folder / table.FIGURE).stat().st_size > 10_000
    parent = track.existing_run(folder)
    assert parent is not None
    client = track.client_of(track.tracking_store(tmp_path).uri)
    run = client.get_run(parent.run_id)
    assert run.info.status == "FINISHED"
    assert {file.path for file in client.list_artifacts(parent.run_id)} == {"figures", "table.json", "table.md"}
    nested = client.search_runs([run.info.experiment_id], f"tags.mlflow.parentRunId = '{parent.run_id}'")
    assert len(nested) == 8
    assert all(one.data.metrics["table/loss"] > 0 for one in nested)
    law = table_page.find_law(small, answer["scores"], answer["facts"])
    assert law is not None
    assert law.describe() == answer["outcome"]
    assert computes(small).keys() == answer["scores"].keys()
