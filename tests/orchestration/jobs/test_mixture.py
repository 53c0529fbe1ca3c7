"""Mixtures on the command line: groups in corpus files and in --data, and one-line errors for invalid groups."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from orchestration.config import load, load_corpus
from orchestration.jobs import Job, JobFlags, describe_built_mixture, open_job, stages
from orchestration.jobs import corpus as corpus_job
from orchestration.progress import ignore_progress
from pipeline.readers import JsonlReader
from preprocessing.errors import BadInput
from preprocessing.rows import ExampleDataset
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from tests.pipeline.conftest import story
from training.run import Run

GPT3 = {"common_crawl": 60, "webtext2": 22, "books1": 8, "books2": 8, "wikipedia": 3}
ON_ITS_CORPUS = ["data.corpus=common_crawl_books", "data.tokenizer.vocab_size=300"]


def write_stories(folder: Path, name: str, first: int, count: int) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"text": story(number)}) + "\n" for number in range(first, first + count)))
    return path


@pytest.fixture
def group_data(tmp_path: Path) -> list[str]:
    """--data arguments for each group of GPT-3's mixture; common_crawl gets two paths."""
    sizes = {"common_crawl": 60, "webtext2": 20, "books1": 16, "books2": 40, "wikipedia": 12}
    data = [
        f"{name}={write_stories(tmp_path / 'text', name, 1_000 * number, size)}"
        for number, (name, size) in enumerate(sizes.items())
    ]
    return [*data, f"common_crawl=jsonl:{write_stories(tmp_path / 'text', 'more', 9_000, 30)}"]


def open_mixture_job(data: list[str], out: Path, recipe: str = "gpt3_125m", *overrides: str) -> Job:
    return open_job(
        JobFlags(recipe=recipe, overrides=[*ON_ITS_CORPUS, *overrides], scale="tiny", data=data, output_dir=out)
    )


def test_gpt3_corpus_has_the_published_weights():
    corpus = load_corpus(load("gpt3_175b").data.corpus)
    assert {group.name: group.weight for group in corpus.mixture} == GPT3
    assert corpus.sources == ()
    assert corpus.shares["common_crawl"] == 60 / 101


@pytest.mark.parametrize(
    ("recipe", "tokens", "printed"),
    [
        # Billions of tokens of each group, and the epochs that the paper reports. For WebText2 and Wikipedia, GPT-3
        # reports 2.9 and 3.4 epochs, which do not follow from its own weights and sizes.
        (
            "gpt3_175b",
            300,
            {
                "common_crawl": (410, 0.44),
                "webtext2": (19, 3.44),
                "books1": (12, 1.9),
                "books2": (55, 0.43),
                "wikipedia": (3, 2.97),
            },
        ),
        (
            "mt_nlg_530b",
            270,
            {
                "books3": (25.7, 1.5),
                "wikipedia": (4.2, 3.2),
                "arxiv": (20.8, 0.2),
                "cc_2021_04": (82.6, 0.5),
                "realnews": (21.9, 1.1),
            },
        ),
    ],
)
def test_published_weights_give_the_published_epochs(recipe, tokens, printed):
    shares = load_corpus(load(recipe).data.corpus).shares
    for name, (size, epochs) in printed.items():
        assert shares[name] * tokens / size == pytest.approx(epochs, rel=0.13)  # the paper rounds sizes and weights


def test_mt_nlg_has_fifteen_groups_with_the_published_sum_of_weights():
    weights = [Fraction(str(group.weight)) for group in load_corpus("pile_and_crawl").mixture]
    assert (len(weights), sum(weights)) == (15, Fraction("100.1"))


def test_data_assigns_text_to_groups_by_name(group_data: list[str], tmp_path: Path):
    job = open_mixture_job(group_data, tmp_path / "out")
    paths = {group.name: [source.place for source in group.sources] for group in job.corpus.mixture}
    assert [Path(path).stem for path in paths["common_crawl"]] == ["common_crawl", "more"]
    assert [Path(path).stem for path in paths["books2"]] == ["books2"]
    assert len(job.corpus.sources) == 6
    (message,) = [line for line in job.source_notes if line.startswith("mixture")]
    assert message.startswith("mixture: fractions of the training tokens: 59.41 % common_crawl, 21.78 % webtext2")
    assert message.endswith("(weights are divided by their sum, 101)")


def test_path_with_an_equals_sign_is_not_a_group(tmp_path: Path):
    path = write_stories(tmp_path / "year=2020", "a", 0, 3)
    job = open_mixture_job([str(path)], tmp_path / "out")
    assert job.corpus.sources == (JsonlReader(path=str(path)),)


def test_text_without_groups_reports_that_weights_are_not_used(tmp_path: Path):
    job = open_mixture_job([str(write_stories(tmp_path / "text", "mine", 0, 5))], tmp_path / "out")
    assert job.corpus.mixture == ()
    assert job.source_notes[-2].startswith("mixture: none, so the weights of common_crawl_books are not used")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["common_crawl={}"], r"no text for webtext2, books1, books2, wikipedia; name it with --data webtext2=PATH"),
        (
            ["crawl={}"],
            r"invalid --data: got crawl=.*, expected GROUP=PATH with a group of corpus common_crawl_books \(common_c",
        ),
        (["common_crawl={}", "{}"], r"with a group of corpus common_crawl_books"),
        (["wikipedia=/nowhere"], r"/nowhere: no such file or directory"),
        (
            ["books1={}", "books1={}"],
            r"^invalid --data: got /.*text/mine\.jsonl more than once, expected each path once, in one group",
        ),
        (["books1={}", "books2={}"], r"more than once, expected each path once, in one group; leave one out$"),
    ],
)
def test_invalid_groups_give_a_one_line_error(data: list[str], message: str, tmp_path: Path):
    path = write_stories(tmp_path / "text", "mine", 0, 5)
    with pytest.raises(BadInput, match=message) as error:
        _ = open_mixture_job([each.format(path) for each in data], tmp_path / "out").plan
    assert "\n" not in str(error.value)


def test_group_for_a_corpus_without_groups_is_refused(tmp_path: Path):
    with pytest.raises(
        BadInput,
        match=r"got books1=/nowhere, expected an existing path, because corpus demo has no groups; .* `mixture` ",
    ):
        open_job(JobFlags(recipe="gpt3_125m", scale="tiny", data=["books1=/nowhere"], output_dir=tmp_path))


@pytest.mark.parametrize(
    ("mixture", "message"),
    [
        ("[{name: a, weight: -2}]", r"invalid mixture\.0\.weight: got -2\.0, expected a number above 0"),
        (
            "[{name: a, wieght: 2}]",
            r"invalid key: got mixture\.0\.wieght, expected a key of mixture\.0; did you mean mixture\.0\.weight",
        ),
        ("[{name: a}]", r"invalid mixture\.0\.weight: got no value, expected a number"),
        ("[{name: a, weight: 1, sources: [{kind: tex, path: x}]}]", r"invalid mixture\.0\.sources\.0\.kind: got 'tex'"),
        (
            "[{name: a, weight: 1}, {name: a, weight: 1}]",
            r"invalid mixture: got \['a', 'a'\], expected unique group names",
        ),
    ],
)
def test_error_in_a_corpus_file_names_its_location(mixture: str, message: str, tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(f"name: mine\nmixture: {mixture}\n")
    with pytest.raises(BadInput, match=message) as error:
        load_corpus(str(tmp_path / "mine.yaml"))
    assert "\n" not in str(error.value)


def corpus_file(folder: Path, weight: float = 3) -> str:
    if not folder.exists():
        write_stories(folder, "a", 0, 60)
        write_stories(folder, "b", 100, 20)
    (folder / "mine.yaml").write_text(
        f"name: mine\nmixture:\n  - {{name: a, weight: 1, sources: [{{kind: jsonl, path: a.jsonl}}]}}\n"
        f"  - {{name: b, weight: {weight}, sources: [{{kind: jsonl, path: b.jsonl}}]}}\n"
    )
    return str(folder / "mine.yaml")


def test_group_paths_are_relative_to_the_corpus_file(tmp_path: Path):
    corpus = load_corpus(corpus_file(tmp_path / "text"))
    assert [source.place for source in corpus.sources] == [str(tmp_path / f"text/{name}.jsonl") for name in "ab"]
    assert [group.sources for group in corpus.mixture] == [(source,) for source in corpus.sources]


def test_changed_weights_change_only_the_corpus_and_the_run(tmp_path: Path):
    before = open_mixture_job([corpus_file(tmp_path / "text")], tmp_path / "out").plan
    after = open_mixture_job([corpus_file(tmp_path / "text", weight=4)], tmp_path / "out").plan
    assert [a.name for a, b in zip(before, after, strict=True) if a.folder != b.folder] == ["corpus", "run"]


@pytest.mark.parametrize("how", ["{name: a, epochs: 2,", "{name: a,"], ids=["epochs", "alpha"])
def test_weights_that_follow_from_sizes_change_only_the_corpus_and_the_run(how: str, tmp_path: Path):
    path = Path(corpus_file(tmp_path / "text"))
    before = open_mixture_job([str(path)], tmp_path / "out")
    end = "" if "epochs" in how else "mixture_sampling_alpha: 0.5\n"
    text = path.read_text().replace("{name: a, weight: 1,", how)
    path.write_text(text.replace("weight: 3,", "epochs: 1," if "epochs" in how else "") + end)
    after = open_mixture_job([str(path)], tmp_path / "out")
    changed = [a.name for a, b in zip(before.plan, after.plan, strict=True) if a.folder != b.folder]
    assert changed == ["corpus", "run"]
    (line,) = after.mixture_notes
    assert line.startswith(
        "mixture: epochs over each group: 2 a, 1 b; the fractions follow from the corpus"
        if "epochs" in how
        else "mixture: weights are the tokens of each group to the power of 0.5; the fractions follow from the corpus"
    )


# Weights in the recipe


def test_weights_of_the_recipe_change_only_the_run(tmp_path: Path):
    data = [corpus_file(tmp_path / "text")]
    before = open_mixture_job(data, tmp_path / "out")
    after = open_mixture_job(data, tmp_path / "out", "gpt3_125m", "data.mixture={a: 9, b: 1}")
    assert [a.name for a, b in zip(before.plan, after.plan, strict=True) if a.folder != b.folder] == ["run"]
    assert [phase.mixture for phase in after.pretraining().phases] == [{"a": 9, "b": 1}]
    assert [phase.mixture for phase in before.pretraining().phases] == [{}]


def test_phases_have_weights_of_their_own_or_those_of_data(tmp_path: Path):
    phases = (
        "phases=[{seq_length: 32, global_batch_size: 8, steps: 300}, "
        "{seq_length: 32, global_batch_size: 8, steps: 20, mixture: {b: 1}}]"
    )
    job = open_mixture_job(
        [corpus_file(tmp_path / "text")], tmp_path / "out", "gpt3_125m", phases, "data.mixture={a: .9, b: .1}"
    )
    assert [phase.mixture for phase in job.pretraining().phases] == [{"a": 0.9, "b": 0.1}, {"b": 1}]
    assert Run.from_json(job.pretraining().to_json()) == job.pretraining()
    assert [line for line in job.source_notes if "fractions" in line] == [
        "mixture: fractions of the training tokens: 25.00 % a, 75.00 % b (weights are divided by their sum, 4)",
        "data.mixture: fractions of the training tokens: 90.00 % a, 10.00 % b",
        "phases.1.mixture: fractions of the training tokens: 100.00 % b",
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "data.mixture={wiki: 1}",
            r"gpt3_125m: invalid data\.mixture: got wiki, expected a group of .* \(a, b\)",
        ),
        ("phases.0.mixture={a: 1, c: 2}", r"gpt3_125m: invalid phases\.0\.mixture: got c, expected a group of"),
        ("phases.0.mixture={a: -1}", r"invalid phases\.0\.mixture: got .*, expected weights by group that are not neg"),
        ("data.mixture={a: 0}", r"invalid data\.mixture: got .*, expected .* at least one above 0"),
        ("data.mixture={a: x}", r"invalid data\.mixture\.a: got 'x', expected a number"),
        (
            "phases=[{seq_length: 32, global_batch_size: 8, steps: 300, batch_unit: token}, "
            "{seq_length: 32, global_batch_size: 8, steps: 20, mixture: {b: 1}}]",
            r"invalid phases\.1\.mixture: got .*, expected equal mixtures in all phases of 32 tokens",
        ),
    ],
)
def test_invalid_weights_in_a_recipe_give_a_one_line_error(override: str, message: str, tmp_path: Path):
    with pytest.raises(BadInput, match=message) as error:
        open_mixture_job([corpus_file(tmp_path / "text")], tmp_path / "out", "gpt3_125m", override)
    assert "\n" not in str(error.value)


def test_weights_for_a_corpus_without_groups_are_refused(tmp_path: Path):
    flags = JobFlags(recipe="gpt3_125m", scale="tiny", overrides=["data.mixture={a: 1}"], output_dir=tmp_path)
    with pytest.raises(
        BadInput, match=r"invalid data\.mixture: got .*, expected none, because the corpus has no groups"
    ):
        open_job(flags)


def test_recipes_without_weights_keep_their_hashes():
    """The hash of version 0.3, before recipes had weights."""
    assert load("bert_base").hash.startswith("5b50fadfc1648c81")
    science = load("bert_base").science
    assert "mixture" not in science["data"]
    assert all("mixture" not in phase for phase in science["phases"])


@pytest.mark.slow
def test_the_output_of_a_corpus_has_the_fractions_that_follow_from_sizes(tmp_path: Path):
    path = Path(corpus_file(tmp_path / "text"))
    text = path.read_text().replace("weight: 1,", "epochs: 1,").replace("weight: 3,", "epochs: 2,")
    path.write_text(text)
    job = open_mixture_job([str(path)], tmp_path / "out")
    manifest = corpus_job.build_untracked(job, ("--direct_running_mode=in_memory",), ignore_progress)
    shares = {name: 100 * group.share for name, group in manifest.mixture.items()}
    (line,) = describe_built_mixture(job.corpus, job.plan.corpus.folder)
    expected = f"fractions of the training tokens: {shares['a']:.2f} % a, {shares['b']:.2f} % b"
    assert line == f"mixture: epochs over each group: 1 a, 2 b; {expected}"
    whole = open_mixture_job([str(path)], tmp_path / "out", "gpt3_125m", "phases.0.epochs=1")
    store = TokenStore.open(job.plan.corpus.folder, "train")
    phase = whole.recipe.phases[0]
    rows = ExampleDataset(store, Vocab.load(store.vocab_dir), job.recipe.sampling, phase.seq_length)
    read = rows.count_realized_shares(phase.steps * phase.global_batch_size)
    assert [found.epochs for found in read] == pytest.approx([1, 2], rel=0.2)  # the last batch is filled
    path.write_text(text.replace("epochs: 2", "epochs: 3"))
    other = open_mixture_job([str(path)], tmp_path / "out")
    assert other.plan.corpus.find_reweighted() == [job.plan.corpus.folder]


def test_corpus_without_a_mixture_keeps_its_causes(tmp_path: Path):
    plan = open_mixture_job([str(write_stories(tmp_path / "x", "a", 0, 5))], tmp_path).plan
    assert "mixture" not in plan.text.causes["corpus"]
    assert plan.corpus.causes.keys() == {"text", "vocab", "marks"}


def test_mixture_beside_other_text_is_refused(tmp_path: Path):
    data = [corpus_file(tmp_path / "text"), str(tmp_path / "text/a.jsonl")]
    with pytest.raises(BadInput, match="--data mine: is a mixture, whose weights do not include other text"):
        open_mixture_job(data, tmp_path / "out")


def test_streamed_sequences_are_refused_with_a_mixture(tmp_path: Path):
    flags = JobFlags(
        recipe="transformer_xl_base", scale="tiny", data=[corpus_file(tmp_path / "text")], output_dir=tmp_path
    )
    with pytest.raises(BadInput, match="corpus mine is a mixture, and sequences of packing stream continue each other"):
        open_job(flags)


def test_static_sequences_are_refused_with_a_mixture(tmp_path: Path):
    job = open_mixture_job([corpus_file(tmp_path / "text")], tmp_path / "out")
    with pytest.raises(BadInput, match="corpus mine is a mixture, and static training sequences ignore its weights"):
        stages.rows(job.recipe, job.plan.corpus, job.out)


@pytest.mark.slow
def test_data_card_reports_tokens_and_epochs_of_each_group(group_data: list[str], tmp_path: Path):
    """The expected numbers are counted again, sequence by sequence."""
    phases = (
        "phases=[{seq_length: 32, global_batch_size: 8, steps: 40}, {seq_length: 64, global_batch_size: 8, steps: 20}]"
    )
    job = open_mixture_job(group_data, tmp_path / "out", "gpt3_125m", "optimizer.warmup_steps=5", phases)
    corpus_job.build_untracked(job, ("--direct_running_mode=in_memory",), ignore_progress)
    known = corpus_job.data_card.facts_of(job.plan.corpus.folder, job.recipe, job.corpus)
    store = TokenStore.open(job.plan.corpus.folder, "train")
    tokens, epochs = dict.fromkeys(sorted(GPT3), 0), dict.fromkeys(sorted(GPT3), 0.0)
    for phase in job.recipe.phases:
        rows = ExampleDataset(store, Vocab.load(store.vocab_dir), job.recipe.sampling, phase.seq_length)
        for epoch, sample in rows.addresses(0, phase.global_batch_size * phase.steps):
            name = sorted(GPT3)[sample % 5]
            tokens[name] += len(rows.row(epoch, sample)["input_ids"])
            epochs[name] += 1 / rows._plans.count(sample % 5, epoch)
    assert [group.name for group in known.mixture] == sorted(GPT3)
    for group in known.mixture:
        assert group.weight == GPT3[group.name]
        assert group.tokens == store.manifest.mixture[group.name].tokens
        assert group.trained == pytest.approx(tokens[group.name], rel=0.06)  # the last sequence of a shard is shorter
        assert group.epochs == pytest.approx(epochs[group.name])
        assert group.trained / sum(tokens.values()) == pytest.approx(group.requested, abs=0.01)
    card = corpus_job.data_card
    markdown = card.save(known, {}, tmp_path)[0].read_text()
    assert "## Mixture" in markdown
    assert "| common\\_crawl | " in markdown
    assert markdown.index("| common\\_crawl") < markdown.index("| webtext2") < markdown.index("| wikipedia |")
    assert "| 59.41 % | 59." in markdown
