"""A corpus without a recipe: recipes use its directories, and errors name what is wrong in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli import main
from orchestration.config import load
from orchestration.jobs import JobFlags, open_corpus_job, open_job
from orchestration.jobs import corpus as corpus_stage
from orchestration.progress import ignore_progress
from orchestration.reports.data_card.facts import _settings
from orchestration.tracking import corpus_metadata
from preprocessing.errors import BadInput
from preprocessing.tokenization import ByteLevelBPE, WordPiece
from tests.golden import text

FILE = "name: mine\nsources: [{{kind: jsonl, path: text.jsonl}}]\n{}"


@pytest.fixture
def corpus_file(tmp_path: Path) -> str:
    text.write(tmp_path / "text.jsonl", num_documents=60)
    with open(tmp_path / "text.jsonl", "a") as file:
        file.write('\n{"text": "Too short."}\n')
    (tmp_path / "mine.yaml").write_text(FILE.format("test_ratio: 0.1\n"))
    return str(tmp_path / "mine.yaml")


def _flags(corpus_file: str, **given: Any) -> JobFlags:
    return JobFlags(recipe=corpus_file, output_dir=Path(corpus_file).parent / "out", **given)


def test_a_recipe_with_this_text_and_tokenizer_has_the_same_directories(corpus_file: str) -> None:
    alone = open_corpus_job(_flags(corpus_file, scale="tiny"), "bert_base")
    keys = open_corpus_job(
        _flags(corpus_file), f"{{kind: wordpiece, vocab_size: {alone.tokenizer.vocab_size}, lowercase: true}}"
    )
    given = {"output_dir": alone.out, "data": (corpus_file,), "scale": "tiny"}
    plan = open_job(JobFlags(recipe="bert_base", **given)).plan
    assert alone.plan == plan[:3] == keys.plan
    assert open_corpus_job(_flags(corpus_file)).wanted == (plan.text,)
    assert open_job(JobFlags(recipe="gpt2", **given)).plan.text == plan.text
    assert open_job(JobFlags(recipe="gpt2", **given)).plan.vocab != plan.vocab


def test_documents_then_tokens_are_made_once_and_a_recipe_finds_them(
    corpus_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(corpus_file).parent / "out"
    words = ["corpus", corpus_file, "--output-dir", str(out), "--progress", "none", "--json"]
    assert main([*words, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"].keys() == {"text"}
    assert not out.exists()
    assert main(words) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["ledger"]["kept"]["documents"] > 40
    assert not (out / "corpora").exists()
    assert main([*words, "--tokenizer", "bert_base", "--scale", "tiny", "--data-card"]) == 0
    printed = capsys.readouterr()
    assert "text: done, skipped" in printed.err
    assert "tokenizer: kind wordpiece, vocab_size" in printed.err
    found = json.loads(printed.out)
    assert (Path(found["folder"]) / "data_card.md").is_file()
    assert found["ledger"]["kept"]["documents"] == made["ledger"]["kept"]["documents"]
    job = open_job(JobFlags(recipe="bert_base", scale="tiny", data=(corpus_file,), output_dir=out))
    assert job.plan.corpus.state == "done"
    monkeypatch.setattr("pipeline.jobs.read_text", lambda *_: pytest.fail("read again"))
    assert corpus_stage.corpus(job, (), ignore_progress).digest == found["digest"]
    for folder in (found["folder"], made["folder"]):
        assert main(["inspect", folder, "--rows", "2", "--step", "1", "--json"]) == 0
        documents = json.loads(capsys.readouterr().out)["documents"]
        assert [document["number"] for document in documents] == [2, 3]
        assert all(document["text"] and document["split"] == "train" for document in documents)
        assert ("tokens" in documents[0]) == (folder == found["folder"])
        assert main(["inspect", folder, "--document", documents[1]["key"][:12], "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["document"] == documents[1]
        assert main(["inspect", folder, "--dropped", "too_short"]) == 0
        assert "too_short: 1 of 1 documents" in capsys.readouterr().out
    assert main(["inspect", made["folder"], "--domains"]) == 2
    assert "invalid --domains: got a directory of cleaned text, expected a corpus" in capsys.readouterr().err
    assert main(["inspect", found["folder"], "--step", "9999"]) == 2
    assert main(["inspect", found["folder"], "--scale", "tiny"]) == 2
    err = capsys.readouterr().err
    assert "invalid step: got number 39,996 for its first document, expected less than " in err
    assert "invalid --scale: got a corpus directory, expected a recipe" in err


def test_the_kind_and_size_of_a_tokenizer_file_are_found(corpus_file: str, tmp_path: Path) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
    for name, extra, lowercase in (("vocab.txt", [], True), ("cased.txt", ["Word"], False)):
        (tmp_path / name).write_text("\n".join([*tokens, *extra]) + "\n")
        job = open_corpus_job(_flags(corpus_file), str(tmp_path / name))
        expected = WordPiece(path=str(tmp_path / name), vocab_size=len(tokens) + len(extra), lowercase=lowercase)
        assert job.tokenizer == expected, "whether letters are folded"


def test_keys_of_a_tokenizer_are_checked_as_in_a_recipe(corpus_file: str) -> None:
    job = open_corpus_job(_flags(corpus_file), "{kind: byte_level_bpe, vocab_size: 8_000}")
    assert job.tokenizer == ByteLevelBPE(vocab_size=8000)
    for given, message in (
        (
            "{kind: wordpiec}",
            "--tokenizer: invalid tokenizer.kind: got 'wordpiec', expected one of .*; did you mean wordp",
        ),
        (
            "{kind: wordpiece, vocab_size: many}",
            "got 'many', expected an integer; see `sesame keys data.tokenizer.vocab",
        ),
        ("{kind: wordpiece", "--tokenizer, line 1: invalid YAML"),
        (
            "nothing",
            "invalid --tokenizer: got 'nothing', expected a tokenizer file or directory, a recipe, or keys such",
        ),
        (corpus_file.replace("mine.yaml", "text.jsonl"), "invalid --tokenizer: got .*, which no tokenizer kind reads"),
    ):
        with pytest.raises(BadInput, match=message) as caught:
            open_corpus_job(_flags(corpus_file), given)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": ("x",)}, "invalid --data: got x with the corpus .*, expected none; list it in `sources`"),
        ({"holdout_ratio": 0.1}, "invalid --holdout-ratio: got 0.1 .*; set validation_ratio and test_ratio in"),
        ({"overrides": ("seed=1",)}, "invalid override: got seed=1 with the corpus"),
        ({"scale": "tiny"}, "invalid --scale: got tiny with the corpus"),
    ],
)
def test_values_that_only_a_recipe_uses_are_refused(given: dict[str, Any], message: str, corpus_file: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_corpus_job(_flags(corpus_file, **given))


def test_a_recipe_and_a_corpus_are_told_apart_in_one_line(
    corpus_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text((Path(__file__).parents[3] / "orchestration/recipes/bert_base.yaml").read_text())
    (tmp_path / "tiny.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    with pytest.raises(BadInput) as caught:
        load(corpus_file)
    assert str(caught.value) == (
        f"{corpus_file}: invalid file: got a corpus (it has sources), expected a recipe; use RECIPE --data "
        f"{corpus_file}, or `sesame corpus {corpus_file} --tokenizer TOKENIZER`"
    )
    for words, message in (
        (["check", corpus_file], "expected a recipe; use RECIPE --data"),
        (
            ["corpus", "gpt2", "--data", str(recipe)],
            "invalid file: got a recipe (it has losses, masking, model, objective",
        ),
        (["corpus", "gpt2", "--tokenizer", "x"], "invalid --tokenizer: got x with the recipe gpt2, expected no value"),
        (
            ["corpus", corpus_file, "--tokenizer", str(tmp_path / "tiny.txt")],
            "an integer of at least 6), expected a file",
        ),
        (["inspect", corpus_file, "--dropped", "all", "--rows", "3"], "invalid options: got --rows 3 with --dropped"),
        (["corpus", corpus_file, "--materialize"], "invalid --materialize: got a corpus without a recipe"),
        (["corpus", corpus_file, "--data-card"], "invalid --data-card: got documents without token IDs"),
        (["corpus", "webtext"], "corpus webtext: its text cannot be distributed"),
    ):
        assert main([*words, *(["--output-dir", str(tmp_path / "out")] if words[0] == "corpus" else [])]) == 2
        assert message in (err := capsys.readouterr().err)
        assert "Traceback" not in err


def test_a_filter_that_changes_while_the_text_is_read_is_refused(
    corpus_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("def reject(text):\n    return False\n")
    Path(corpus_file).write_text(FILE.format("clean: {filters: [mine.py]}\n"))
    job = open_corpus_job(_flags(corpus_file))
    assert job.text.state == "due"
    (tmp_path / "mine.py").write_text("def reject(text):\n    return len(text) < 50\n")
    with pytest.raises(BadInput, match="its text changed while this command ran"):
        corpus_stage.documents(job, (), ignore_progress)
    assert job.text.state == "begun"
    again = open_corpus_job(_flags(corpus_file))
    assert again.text.folder != job.text.folder


def test_a_card_and_mlflow_name_own_filters_without_their_path(corpus_file: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code := "def reject(text):\n    return False\n")
    (tmp_path / "words.txt").write_text("casino\n")
    clean = "clean: {filters: [c4, mine.py], urls: {banned_words: words.txt}}\n"
    source = "{kind: jsonl, path: text.jsonl, url_key: url}"
    Path(corpus_file).write_text(f"name: mine\nsources: [{source}]\n{clean}")
    job = open_corpus_job(_flags(corpus_file), "{kind: byte_level_bpe, vocab_size: 300}")
    settings = _settings(job.corpus)
    assert settings["clean.filters.0"] == "c4"
    assert settings["clean.filters.1"].startswith("mine:")
    assert not [value for value in settings.values() if str(tmp_path) in value]
    assert corpus_metadata(job.corpus, job.tokenizer).files["filter_mine.py"] == code
    assert not [
        name for name in _settings(open_job(JobFlags(recipe="bert_base", data=("demo",))).corpus) if "urls" in name
    ]
