"""The table of task scores."""

import csv
import io
import json
from dataclasses import asdict, replace
from pathlib import Path

from orchestration.reports import SCORE_FILE, load_score, score_csv, score_page, score_rows, score_values
from orchestration.reports.score_table import scale_value
from tests.orchestration.config.test_task_files import METRICS
from training.evaluation.metrics import PairedDifference
from training.evaluation.tasks import SelectedTrials, TaskScore


def score(task: str, **more: object) -> TaskScore:
    splits = {"dev": {"f1": (0.81, 0.82, 0.80), "exact": (0.7, 0.7, 0.7)}}
    starts = {
        "pretrained": SelectedTrials({"learning_rate": 3e-4, "batch_size": 32, "epochs": 4.0, "max_steps": 0}, splits)
    }
    values = {"metric": "f1", "split": "dev", "chosen_on": "dev", "starts": starts, **more}
    return TaskScore(task, **values)  # type: ignore[arg-type]


def test_fractions_are_percentages_and_empty_columns_are_omitted() -> None:
    (row,) = score_rows([score("squad", paper={"squad.f1": 88.5})])
    assert row == {"task": "squad", "metric": "f1", "split": "dev", "pretrained": "81.0 +- 1.0", "paper": "f1 88.5"}


def test_gain_over_random_weights_is_shown() -> None:
    one = score("squad")
    random = SelectedTrials({}, {"dev": {"f1": (0.5, 0.5, 0.5), "exact": (0.3, 0.3, 0.3)}})
    both = score("squad", starts={**one.starts, "random": random}, chance=0.25, labels=200)
    (row,) = score_rows([both])
    assert (row["random"], row["gain"], row["p"], row["majority"]) == ("50.0 +- 0.0", "+31.0", "not tested", "25.0")
    tested = replace(both, gain=PairedDifference(0.31, 0.204, 0.416, 0.0123, 3, 71))
    assert [score_rows([tested])[0][name] for name in ("gain", "p")] == ["+31.0 [+20.4, +41.6]", "0.012"]
    (values,) = score_values([tested])
    assert (values["p"], values["wins"], values["margin"]) == (0.0123, True, 0.31)
    single = {start: SelectedTrials({}, {"dev": {"f1": (0.5,)}}) for start in ("pretrained", "random")}
    assert score_rows([score("squad", starts=single)])[0]["p"] == "one seed"
    single = {start: SelectedTrials({}, {"dev": {"f1": (0.5,), "rows": (1.0,)}}) for start in ("pretrained", "random")}
    assert score_rows([score("lambada", starts=single)])[0]["p"] == "one example"


def test_interval_and_constant_answer_are_shown_beside_the_score() -> None:
    one = score("mrpc", intervals={"pretrained": (0.752, 0.861)}, constant={"pretrained": "one constant answer: 'yes'"})
    assert score_rows([one])[0]["pretrained"] == "81.0 +- 1.0 [75.2, 86.1], constant answer"
    assert "95 % confidence interval" in score_page("bert", [one])
    perplexity = SelectedTrials({}, {"dev": {"word_perplexity": (35.13,)}})
    read = score(
        "wiki", metric="word_perplexity", starts={"pretrained": perplexity}, intervals={"pretrained": (30, 41)}
    )
    assert score_rows([read])[0]["pretrained"] == "35.1 [30.0, 41.0]"


def test_note_is_printed_once_with_its_scores() -> None:
    """Notes of a task scored at nine checkpoints were once printed nine times on its page."""
    steps = [score("rte", step=100 * n, notes=("cut", *(["one"] if n == 1 else []))) for n in range(1, 10)]
    page = score_page("bert", [*steps, score("mrpc", notes=("cut",))])
    assert [line for line in page.splitlines() if line.startswith("* ") and "pretrained" not in line] == [
        "* rte, all 9 scores: cut",
        "* rte at step 100: one",
        "* mrpc: cut",
    ]


def test_saved_score_is_loaded_unchanged(tmp_path: Path) -> None:
    one = score(
        "rte", gain=PairedDifference(0.1, 0.0, 0.2, 0.05, 3, 71), intervals={"pretrained": (0.5, 0.6)}, notes=("a",)
    )
    (tmp_path / SCORE_FILE).write_text(json.dumps([asdict(one)]))
    assert load_score(tmp_path) == one
    before = {name: value for name, value in asdict(one).items() if name not in ("gain", "intervals", "constant")}
    (tmp_path / SCORE_FILE).write_text(json.dumps([before]))
    assert load_score(tmp_path) == replace(one, gain=None, intervals={})


def test_majority_and_chance_are_separate_values() -> None:
    """The fraction of the most frequent answer was once called chance."""

    def row(**counted: tuple[float, ...]) -> dict[str, str]:
        starts = {"pretrained": SelectedTrials({}, {"test": {"accuracy": (0.6,)} | counted})}
        one = score("x", metric="accuracy", split="test", starts=starts, chance=0.5)
        (found,), (values,) = score_rows([one]), score_values([one])
        assert [values[name] for name in ("majority", "chance")] == [
            float(found[name]) / 100 if name in found else None for name in ("majority", "chance")
        ]
        return {name: found[name] for name in ("majority", "chance") if name in found}

    assert row() == {"majority": "50.0"}
    assert row(chance=(0.25,), majority=(0.5,)) == {"majority": "50.0", "chance": "25.0"}
    assert row(chance=(0.5,)) == {"chance": "50.0"}


def test_other_metrics_have_a_unit_and_examples_are_counted() -> None:
    one = score("wiki", metric="word_perplexity", split="test", starts={"pretrained": SelectedTrials({}, {"test": {
        "word_perplexity": (884745.0,)}})})  # fmt: skip
    both = score_rows(
        [one, score("squad", starts={"pretrained": SelectedTrials({}, {"dev": {"f1": (0.5,), "rows": (30.0,)}})})]
    )
    assert [(row["unit"], row["rows"]) for row in both] == [("perplexity", ""), ("", "30")]
    assert [(values["rows"], values["train_rows"]) for values in score_values([one])] == [(None, None)]


def test_split_of_a_reported_score_is_shown() -> None:
    (row,) = score_rows([score("rte", paper={"glue.rte (test)": 66.4, "glue.mnli_m": 84.6})])
    assert row["paper"] == "rte 66.4 (test), mnli_m 84.6"


def test_page_lists_selected_hyperparameters_metrics_and_failures() -> None:
    page = score_page("bert_base", [score("squad", failed=("squad, seed 2: loss nan",))])
    assert "# Scores of bert_base" in page
    assert "| squad | f1 | dev | 81.0 +- 1.0 |" in page
    assert (
        "* squad, pretrained: learning_rate 0.0003, batch_size 32, epochs 4 (best on dev): dev f1 81.0 +- 1.0; dev "
        "exact 70.0" in page
    )
    assert "* squad: no score of squad, seed 2: loss nan" in page


def test_max_steps_replaces_epochs() -> None:
    how = {"learning_rate": 3e-4, "batch_size": 32, "epochs": 3.0, "max_steps": 200}
    one = score("squad", starts={"pretrained": SelectedTrials(how, {"dev": {"f1": (0.5,)}})})
    assert "learning_rate 0.0003, batch_size 32, max_steps 200 (best on dev): " in score_page("bert_base", [one])


def test_counts_and_logits_are_not_percentages() -> None:
    """These values appear beside perplexities and the F1 of SQuAD 2.0 in the scores of a split."""
    read = {"token_perplexity": (9.5,), "tokens": (5000.0,), "window": (256.0,), "memory": (0.0,), "cut": (12.0,)}
    one = score("wiki", metric="token_perplexity", starts={"pretrained": SelectedTrials({}, {"dev": read})})
    page = score_page("gpt2", [one])
    assert "dev token_perplexity 9.5; dev tokens 5,000; dev window 256; dev memory 0; dev cut 12" in page
    logits = SelectedTrials({}, {"dev": {"f1": (0.5, 0.7), "best_f1": (0.75, 0.75), "best_f1_thresh": (3.45, 2.55)}})
    page = score_page("bert", [score("squad2", starts={"pretrained": logits})])
    assert "dev f1 60.0 +- 14.1; dev best_f1 75.0 +- 0.0; dev best_f1_thresh 3.0 +- 0.6" in page


FRACTIONS = {
    *("accuracy", "accuracy_token", "accuracy_character", "accuracy_byte", "accuracy_unconditional"),
    *("accuracy_low", "accuracy_high", "ties", "ties_token", "chance", "majority", "macro_accuracy", "macro_low"),
    *("macro_high", "accuracy_of_anaphor_agreement", "accuracy_middle", "last_word", "last_token", "f1"),
    *("macro_f1", "matthews", "spearman", "pearson", "precision", "recall", "exact", "HasAns_f1", "NoAns_exact"),
    *("best_exact", "exact_match", "top5", "rouge1", "rouge2", "rougeL", "rougeLsum", "bleu", "chrf", "coqa_f1"),
}
OTHERS = {
    *("word_perplexity", "token_perplexity", "byte_perplexity", "bits_per_byte", "bits_per_character"),
    *("perplexity", "loss", "last_token_perplexity", "perplexity_64", "effective_length", "tokens", "words"),
    *("bytes", "window", "stride", "memory", "cut", "unknown", "best_exact_thresh", "best_f1_thresh"),
}


def test_every_metric_is_classified_as_fraction_or_other() -> None:
    assert {scale_value(0.5, name) for name in FRACTIONS} == {50.0}
    assert {scale_value(20.0, name) for name in OTHERS} == {20.0}
    assert set().union(*METRICS.values()) <= FRACTIONS | OTHERS


def test_each_value_is_a_csv_line() -> None:
    lines = list(csv.reader(io.StringIO(score_csv([score("squad")]))))
    assert lines[0] == ["task", "step", "labels", "start", "split", "metric", "number", "value"]
    assert lines[2] == ["squad", "", "", "pretrained", "dev", "f1", "1", "0.82"]
    assert len(lines) == 7


def test_json_has_the_values_of_an_initialization_at_the_top_level() -> None:
    (values,) = score_values([score("squad")])
    assert values["pretrained"] == (0.81, 0.82, 0.80)
    assert values["margin"] is None
