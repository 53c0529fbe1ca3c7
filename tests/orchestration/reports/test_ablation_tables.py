"""Tables of the literature: values that fit together, an order that is computed, cells that are not done again."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration import cli, figures
from orchestration.jobs import Flags
from orchestration.jobs import ablation as table
from orchestration.launch import group as launch
from orchestration.progress import ignore
from orchestration.reports.ablations import Row, Table
from orchestration.reports.ablations import page as table_page
from orchestration.reports.ablations import text as table_text
from orchestration.reports.ablations.tables import TABLES, Alike, Below, Measure, named
from orchestration.tracking import runs as track
from preprocessing.errors import BadInput

SMALL = Table(
    name="small",
    title="Two nets",
    paper="A paper, 2019",
    stub="loss",
    rows={
        "none": Row(
            recipe="albert_base",
            overrides=("data.segment.negative=none", "objective.losses=[{kind: masked_tokens}]"),
            paper={"SOP": 53.3},
        ),
        "SOP": Row(recipe="albert_base", paper={"SOP": 86.5}),
    },
    columns={
        "MLM": Measure(kind="masked", of="none", means="hidden tokens"),
        "SOP": Measure(kind="pairs", of="SOP", means="order"),
    },
    claims=(Below("SOP", ("none",), ("SOP",)), Alike("MLM", 0.1)),
    vocab="data.vocab={kind: wordpiece, size: 300}",
    budget={"tiny": ("phases=[{length: 48, batch: 8, steps: 6}]", "optim.warmup=2")},
)
CAME_OUT = {"none": {"MLM": [0.50, 0.52], "SOP": [0.5, 0.6]}, "SOP": {"MLM": [0.51, 0.53], "SOP": [0.8, 0.9]}}
TOLD = {
    "scores": CAME_OUT,
    "rests_on": {"MLM": "9 tokens", "SOP": "8 pairs"},
    "steps": 6,
    "rows_of_a_step": 8,
    "tokens_of_a_row": 48,
    "text": ["mini_world"],
    "recipes": ["albert_base_tiny"],
}


@pytest.fixture(autouse=True)
def few_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_text, "NUM_DOCUMENTS", 120)


def planned(one: Table, out: Path, *overrides: str, seeds: int = 1, **flags) -> table.Plan:
    return table.plan(one, Flags(recipe=one.name, overrides=overrides, out=out, **{"scale": "tiny"} | flags), seeds)


# Values


@pytest.mark.parametrize("one", TABLES.values(), ids=TABLES)
def test_measures_and_claims_speak_of_rows_and_columns_that_are_there(one: Table) -> None:
    for claim in one.claims:
        assert claim.column in one.columns
        assert set(claim.lower + claim.higher if isinstance(claim, Below) else claim.rows) <= set(one.rows)
    assert all(measure.of in one.rows for measure in one.columns.values() if measure.kind != "task")


@pytest.mark.parametrize("scale", ["tiny", "small"])
@pytest.mark.parametrize("one", TABLES.values(), ids=TABLES)
def test_rows_have_one_budget_and_one_text(one: Table, scale: str, tmp_path: Path) -> None:
    plan = planned(one, tmp_path, scale=scale, seeds=2)
    assert len(plan.cells) == 2 * len(one.rows)
    recipes = [cell.job.recipe for cell in plan.cells]
    assert len({(recipe.phases, recipe.optim, recipe.trunk, recipe.data.vocab) for recipe in recipes}) == 1
    assert len({cell.job.corpus.sources[0].path for cell in plan.cells}) == 1
    assert len({cell.job.plan.run.folder for cell in plan.cells}) == len(plan.cells)  # no row is another one's twin
    assert {cell.job.cluster.num_workers(cell.job.recipe) for cell in plan.cells} == {1}


def test_pair_losses_are_all_that_differs_between_the_rows_of_albert() -> None:
    segments = {
        label: dict(part.split("=") for part in row.overrides) for label, row in TABLES["albert-sp"].rows.items()
    }
    assert {label: found.get("data.segment.negative", "swap") for label, found in segments.items()} == {
        "none": "none",
        "NSP": "random",
        "SOP": "swap",
    }
    assert [label for label, found in segments.items() if "objective.losses" in found] == ["none"]


def test_other_text_takes_the_place_of_the_made_up_one(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A text.\n")
    plan = planned(SMALL, tmp_path, data=(str(tmp_path / "text.txt"),))
    assert {cell.job.corpus.name for cell in plan.cells} == {"text"}
    assert {cell.job.recipe.data.vocab.kind for cell in plan.cells} == {"unigram"}  # the recipe's own again


def test_a_name_that_is_none_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"albert_sp is not one of the tables .*did you mean albert-sp"):
        named("albert_sp")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("table albert", "albert is not one of the tables"),
        ("table albert-sp --scale huge --dry-run", "--scale is 'huge', allowed are tiny, small"),
        ("table albert-sp --seeds 0", "Invalid value for '--seeds'"),
        ("table albert-sp trunk.layer=3 --dry-run", "layer is not a key of"),
        ("table albert-sp --data nowhere.txt --dry-run", "nowhere.txt"),
    ],
)
def test_what_cannot_be_is_one_line(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(line)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_without_a_name_the_tables_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["table", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {*TABLES, "next"}


# What came out


def test_an_order_that_came_out_is_said() -> None:
    assert table_page.outcome(SMALL, CAME_OUT) == "The order of the paper's rows came out: 1 of 1 claims hold."
    order, alike = table_page.verdicts(SMALL, CAME_OUT)
    assert str(order) == "SOP: none < SOP: yes (by 0.300; in 2 of 2 seeds)"
    assert str(alike) == "MLM: all within 0.1: yes (they differ by 0.010; in 2 of 2 seeds)"


def test_an_order_that_did_not_is_said_too() -> None:
    turned = {"none": CAME_OUT["SOP"], "SOP": CAME_OUT["none"] | {"MLM": [0.8, 0.3]}}
    assert table_page.outcome(SMALL, turned) == (
        "The order of the paper's rows did not come out: 0 of 1 claims hold, not SOP: none < SOP."
    )
    order, alike = table_page.verdicts(SMALL, turned)
    assert (order.holds, order.seeds, order.of) == (False, 0, 2)
    assert (alike.holds, alike.seeds) == (True, 0)  # the mean of two that are far off on either side


def test_what_is_alike_in_the_paper_alone_is_no_matter_of_order_and_is_said() -> None:
    unlike = CAME_OUT | {"none": CAME_OUT["none"] | {"MLM": [0.1, 0.2]}}
    assert table_page.outcome(SMALL, unlike) == (
        "The order of the paper's rows came out: 1 of 1 claims hold. "
        "What is alike there is not here: MLM: all within 0.1."
    )


def test_equal_scores_are_no_order() -> None:
    same = {row: {"MLM": [0.5], "SOP": [0.5]} for row in SMALL.rows}
    assert [one.holds for one in table_page.verdicts(SMALL, same)] == [False, True]


def test_every_row_must_be_below_every_other_one() -> None:
    three = replace(SMALL, claims=(Below("SOP", ("none", "NSP"), ("SOP",)),))
    scores = {row: {"SOP": [value]} for row, value in {"none": 0.5, "NSP": 0.8, "SOP": 0.7}.items()}
    assert not table_page.verdicts(three, scores)[0].holds
    scores["NSP"]["SOP"] = [0.6]
    assert table_page.verdicts(three, scores)[0].holds


def test_some_rows_may_be_alike_and_others_not() -> None:
    scores = {row: {"SOP": [value]} for row, value in {"none": 0.5, "NSP": 0.51, "SOP": 0.7}.items()}
    some, every = (replace(SMALL, claims=(Alike("SOP", 0.02, rows),)) for rows in (("none", "NSP"), ()))
    assert str(table_page.verdicts(some, scores)[0]).startswith("SOP: none, NSP within 0.02: yes (they differ by 0.010")
    assert not table_page.verdicts(every, scores)[0].holds


def test_the_page_has_means_and_deviations_beside_the_papers_figures() -> None:
    page = table_page.markdown(SMALL, TOLD)
    assert "| loss | MLM | SOP | paper: SOP |\n|---|---|---|---|\n" in page
    assert "| none | 0.510 +- 0.014 | 0.550 +- 0.071 | 53.3 |\n" in page
    assert "over 2 seeds" in page
    assert "order (8 pairs)" in page
    assert "**The order of the paper's rows came out: 1 of 1 claims hold.**" in page


def test_one_seed_has_no_deviation() -> None:
    one = {row: {name: values[:1] for name, values in of_row.items()} for row, of_row in CAME_OUT.items()}
    page = table_page.markdown(SMALL, TOLD | {"scores": one})
    assert "| none | 0.500 | 0.500 | 53.3 |" in page
    assert "+-" not in page
    assert set(table_page.means(one)) == {"none/MLM", "none/SOP", "SOP/MLM", "SOP/SOP"}


def test_the_figure_has_a_bar_for_each_row_in_each_column_and_a_dot_for_each_seed() -> None:
    (axes,) = figures.groups("Two nets", table_page.by_column(SMALL, CAME_OUT)).axes
    assert [round(bar.get_height(), 2) for group in axes.containers for bar in group] == [0.51, 0.55, 0.52, 0.85]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["MLM", "SOP"]
    assert [list(line.get_ydata()) for line in axes.lines[:2]] == [[0.50, 0.52], [0.5, 0.6]]


# Cells


def test_a_cell_that_is_done_says_so(tmp_path: Path) -> None:
    plan = planned(SMALL, tmp_path, seeds=2)
    first, second, third, _ = plan.cells
    for stage in (first.job.plan.run, first.stage, second.job.plan.run):
        stage.folder.mkdir(parents=True)
        stage.finish()
    third.job.plan.run.folder.mkdir(parents=True)
    said = [cell.said().split(" (")[0] for cell in plan.cells]
    assert said == [
        "none, seed 0: done, skipped",
        "SOP, seed 0: trained, to measure",
        "none, seed 1: begun, goes on",
        "SOP, seed 1: to do",
    ]


def test_another_claim_is_another_table_of_the_same_cells(tmp_path: Path) -> None:
    before, after = planned(SMALL, tmp_path), planned(replace(SMALL, claims=()), tmp_path)
    assert before.stage.folder != after.stage.folder
    assert [cell.stage for cell in before.cells] == [cell.stage for cell in after.cells]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_table_is_made_once_and_nested_in_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(SMALL, tmp_path)
    told = table.make(plan, ignore)
    assert all(0 <= score <= 1 for row in told["scores"].values() for (score,) in row.values())
    page = (plan.stage.folder / table.PAGE).read_text()
    assert page == table_page.markdown(SMALL, told)

    place = track.place(tmp_path)
    client, parent = track.client_of(place.uri), track.known(plan.stage.folder)
    run = client.get_run(parent.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics == table_page.means(told["scores"])
    assert {file.path for file in client.list_artifacts(parent.run_id)} == {"figures", "table.json", "table.md"}
    nested = client.search_runs(
        [run.info.experiment_id], f"tags.mlflow.parentRunId = '{parent.run_id}'", order_by=["tags.row"]
    )
    assert [one.info.run_name for one in nested] == ["SOP, seed 0", "none, seed 0"]
    assert [one.data.metrics["table/SOP"] for one in nested] == [
        *told["scores"]["SOP"]["SOP"],
        *told["scores"]["none"]["SOP"],
    ]

    def never(*given, **named):
        raise AssertionError("what is done is not done again")

    monkeypatch.setattr(launch, "pretrain", never)
    assert table.make(plan, ignore) == told
    (plan.stage.folder / "stage.json").unlink()
    (plan.cells[0].stage.folder / "stage.json").unlink()  # one cell is to be measured again, none to be trained
    assert table.make(plan, ignore) == told
    assert track.known(plan.stage.folder) == parent


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_error_of_a_cell_ends_the_table(tmp_path: Path) -> None:
    plan = planned(SMALL, tmp_path, "cluster.workers=9", "phases=[{length: 48, batch: 9, steps: 6}]")
    with pytest.raises(Exception, match="9 workers"):
        table.make(plan, ignore)
    assert (
        track.client_of(track.place(tmp_path).uri).get_run(track.known(plan.stage.folder).run_id).info.status
        == "FAILED"
    )
