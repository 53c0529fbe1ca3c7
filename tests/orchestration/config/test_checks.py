"""Incompatible lengths and objectives are refused before a run; unexpected settings are reported."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from orchestration.cli import main
from orchestration.config import check, checks, find_remarks, key_names, load, load_cluster
from preprocessing.masking import (
    EntityMasking,
    FragmentMasking,
    Masking,
    NgramMasking,
    PartialPrediction,
    RandomSpans,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)

CPU, GPU = load_cluster("local"), load_cluster("one_gpu")


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("t5_iid", ["phases.0.seq_length=1024"], "expected at least 154, one sentinel for each span"),
        (
            "t5_iid",
            ["phases.0.seq_length=700"],
            "or lower phases.0.seq_length to 667",
        ),  # 3 sequences in 10,000 have more than 100 spans
        ("t5_iid", ["masking.rounding=independent"], "expected at least 256, one sentinel"),
        ("t5_iid", ["masking={kind: whole_word, rate: 0.3}"], "raise it to 154"),
        ("t5_iid", ["masking={kind: span, rate: 0.3}"], "invalid data.tokenizer.extra_ids: got 100"),
        (
            "t5_base",
            ["phases.0.seq_length=2048"],
            "or lower phases.0.seq_length to 1809",
        ),  # each sequence has 114 spans
        ("t5_base", ["data.tokenizer.extra_ids=20"], "raise it to 28"),
        (
            "xlnet_base",
            ["phases.0.seq_length=260"],
            "got 260, expected at least 261 with packing stream_pair; raise it to 261",
        ),
    ],
)
def test_a_length_incompatible_with_the_objective_is_refused(recipe: str, overrides: list[str], message: str) -> None:
    (line,) = [line for line in check(load(recipe, overrides), GPU) if "phases.0.seq_length" in line]
    assert message in line


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("t5_iid", []),
        ("t5_iid", ["phases.0.seq_length=667"]),
        ("t5_iid", ["phases.0.seq_length=1024", "data.tokenizer.extra_ids=154"]),
        ("t5_base", ["phases.0.seq_length=1809"]),
        ("t5_bert_style", ["phases.0.seq_length=2048"]),  # one sentinel for all spans
        ("t5_drop", ["phases.0.seq_length=2048"]),  # none
        ("xlnet_base", ["phases.0.seq_length=261", "objective.perm_size=8"]),
    ],
)
def test_a_length_compatible_with_the_objective_is_accepted(recipe: str, overrides: list[str]) -> None:
    assert check(load(recipe, overrides), GPU) == []


CHOICES: tuple[Masking, ...] = (
    TokenMasking(rate=0.5),
    TokenMasking(rounding="independent", rate=0.5),
    TokenMasking(rounding="stochastic"),
    TokenMasking(max_predictions_per_seq=3),
    WholeWordMasking(rate=0.4),
    NgramMasking(rate=0.4, ngram_unit="token"),
    EntityMasking(rate=0.3, token_level_prob=0.5),
    EntityMasking(rounding="independent"),
    SpanMasking(rate=0.6, max_span_length=1),
    PartialPrediction(group_size=2, max_ngram=1),
    FragmentMasking(rate=0.5, block_size=4),
    RandomSpans(mean_noise_span_length=1.0),
)


@pytest.mark.parametrize("masking", CHOICES, ids=repr)
def test_no_sequence_has_more_masked_runs_than_its_masking_states(masking: Masking) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        num_tokens = int(rng.integers(1, 40))
        row = {"input_ids": np.arange(num_tokens), "special_tokens_mask": np.zeros(num_tokens, bool)}
        row["special_tokens_mask"][rng.integers(num_tokens)] = num_tokens > 1
        for name in ("word_starts", "unit_starts"):
            row[name] = rng.random(num_tokens) < 0.8
            row[name][0] = True
            row[name] |= row["special_tokens_mask"] | np.append(False, row["special_tokens_mask"][:-1])
        is_hit_S = masking(row, rng) > 0
        runs = int((np.diff(is_hit_S.astype(int), prepend=0) == 1).sum())
        assert runs <= masking.most_runs(num_tokens)


@pytest.mark.parametrize(
    ("recipe", "overrides", "cluster", "message"),
    [
        ("bert_base", [], CPU, "the learning rate of the first step is 0"),
        ("gpt2", [], GPU, "whose initial values are also rounded to bf16"),
        ("pegasus_base", [], CPU, "a sequence of one sentence is predicted from [MASK] only"),
        ("bert_base", ["optimizer.warmup_steps=0"], CPU, ""),
        ("t5_base", [], CPU, ""),  # its learning rate starts at the peak
    ],
)
def test_unexpected_settings_are_reported(recipe: str, overrides: list[str], cluster: object, message: str) -> None:
    found = find_remarks(load(recipe, overrides), cluster)  # type: ignore[arg-type]
    assert bool(found) == bool(message)
    assert message in "\n".join(found)


def test_the_command_check_prints_the_remarks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "pegasus_base", "--cluster", "one_gpu"]) == 0
    reported = capsys.readouterr().err
    assert "a sequence of one sentence is predicted from [MASK] only" in reported
    assert "whose initial values are also rounded to bf16" in reported


def test_each_key_named_in_a_message_exists() -> None:
    """Messages used to name `phases.warmup_steps_steps`, and `tensor_parallel` instead of `tensor_parallel_size`."""
    known = {step for name in key_names() for step in name.split(".")} | {"per_sequence", "tokenizer_config"}
    constants = [
        node.value
        for node in ast.walk(ast.parse(Path(checks.__file__).read_text("utf-8")))
        if isinstance(node, ast.Constant)
    ]
    messages = [text for text in constants if isinstance(text, str) and (" " in text or "." in text)]
    named = {word for text in messages for word in re.findall(r"\b[a-z]+(?:_[a-z0-9]+)+\b", text)}
    assert {"warmup_steps", "tensor_parallel_size"} <= named
    assert not named - known


def test_fp8_without_its_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = load_cluster("one_gpu", ["cluster.engine.fp8_recipe=tensorwise"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert check(load("gpt2"), cluster) == [
        "invalid cluster.engine.fp8_recipe: got tensorwise, expected the package torchao to be installed; run `pip "
        "install 'sesame-pretraining[fp8]'`, or set it to none"
    ]
    assert check(load("gpt2"), GPU) == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert check(load("gpt2"), cluster) == []


@pytest.mark.parametrize("cluster", ["local", "one_gpu"])
def test_fp8_that_is_not_possible_ends_with_2(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["cluster.engine.fp8_recipe=rowwise", *(["cluster.engine.precision=fp32"] if cluster == "one_gpu" else [])]
    assert main(["check", "gpt2", "--cluster", cluster, *keys]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "invalid cluster.engine.fp8_recipe: got 'rowwise', expected none" in line
