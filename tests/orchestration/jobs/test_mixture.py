"""Mixtures from the command line: what corpus files and --data say of groups, and what is refused in one line."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from orchestration.config import load, load_corpus
from orchestration.jobs import Job, JobFlags, open_job, stages
from orchestration.jobs import corpus as corpus_job
from orchestration.progress import ignore_progress
from pipeline.readers import JsonlReader
from preprocessing.errors import BadInput
from preprocessing.rows import ExampleDataset
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from tests.pipeline.conftest import story

GPT3 = {"common_crawl": 60, "webtext2": 22, "books1": 8, "books2": 8, "wikipedia": 3}
ON_ITS_CORPUS = ["data.corpus=common_crawl_books", "data.tokenizer.vocab_size=300"]


def stories(folder: Path, name: str, first: int, count: int) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"text": story(number)}) + "\n" for number in range(first, first + count)))
    return path


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    """--data for each group of GPT-3's mixture; Common Crawl is of two paths."""
    sizes = {"common_crawl": 60, "webtext2": 20, "books1": 16, "books2": 40, "wikipedia": 12}
    data = [
        f"{name}={stories(tmp_path / 'text', name, 1_000 * number, size)}"
        for number, (name, size) in enumerate(sizes.items())
    ]
    return [*data, f"common_crawl=jsonl:{stories(tmp_path / 'text', 'more', 9_000, 30)}"]


def opened(data: list[str], out: Path, recipe: str = "gpt3_125m", *overrides: str) -> Job:
    return open_job(
        JobFlags(recipe=recipe, overrides=[*ON_ITS_CORPUS, *overrides], scale="tiny", data=data, output_dir=out)
    )


def test_gpt3_names_the_weights_of_its_table():
    corpus = load_corpus(load("gpt3_175b").data.corpus)
    assert {group.name: group.weight for group in corpus.mixture} == GPT3
    assert corpus.sources == ()
    assert corpus.shares["common_crawl"] == 60 / 101


@pytest.mark.parametrize(
    ("recipe", "tokens", "printed"),
    [
        # Billions of tokens of each group, and how often the paper says that it reads it. GPT-3 prints 2.9 for WebText2
        # and 3.4 for Wikipedia, which its own weights and sizes do not give.
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
def test_the_weights_of_a_paper_give_the_epochs_that_it_prints(recipe, tokens, printed):
    shares = load_corpus(load(recipe).data.corpus).shares
    for name, (size, epochs) in printed.items():
        assert shares[name] * tokens / size == pytest.approx(epochs, rel=0.13)  # from rounded sizes and weights


def test_mt_nlg_has_fifteen_groups_whose_weights_add_up_as_printed():
    weights = [Fraction(str(group.weight)) for group in load_corpus("pile_and_crawl").mixture]
    assert (len(weights), sum(weights)) == (15, Fraction("100.1"))


def test_each_group_is_given_its_text_by_name(given: list[str], tmp_path: Path):
    job = opened(given, tmp_path / "out")
    paths = {group.name: [source.place for source in group.sources] for group in job.corpus.mixture}
    assert [Path(path).stem for path in paths["common_crawl"]] == ["common_crawl", "more"]
    assert [Path(path).stem for path in paths["books2"]] == ["books2"]
    assert len(job.corpus.sources) == 6
    (said,) = [line for line in job.source_notes if line.startswith("mixture")]
    assert said.startswith("mixture: fractions of the training tokens: 59.41 % common_crawl, 21.78 % webtext2")
    assert said.endswith("(weights are divided by their sum, 101)")


def test_a_path_with_a_sign_of_equality_is_a_path(tmp_path: Path):
    path = stories(tmp_path / "year=2020", "a", 0, 3)
    job = opened([str(path)], tmp_path / "out")
    assert job.corpus.sources == (JsonlReader(path=str(path)),)


def test_text_without_groups_says_that_no_weights_count(tmp_path: Path):
    job = opened([str(stories(tmp_path / "text", "mine", 0, 5))], tmp_path / "out")
    assert job.corpus.mixture == ()
    assert job.source_notes[-2].startswith("mixture: none, so the weights of common_crawl_books are not used")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (["common_crawl={}"], r"no text for webtext2, books1, books2, wikipedia; name it with --data webtext2=PATH"),
        (
            ["crawl={}"],
            r"invalid --data: got crawl=.*, expected GROUP=PATH with a group of corpus common_crawl_books \(common_c",
        ),
        (["common_crawl={}", "{}"], r"with a group of corpus common_crawl_books"),
        (["wikipedia=/nowhere"], r"/nowhere: no such file or folder"),
        (
            ["books1={}", "books1={}"],
            r"^invalid --data: got /.*text/mine\.jsonl more than once, expected each path once, in one group",
        ),
        (["books1={}", "books2={}"], r"more than once, expected each path once, in one group; leave one out$"),
    ],
)
def test_what_does_not_fit_the_groups_is_refused_in_one_line(data: list[str], said: str, tmp_path: Path):
    path = stories(tmp_path / "text", "mine", 0, 5)
    with pytest.raises(BadInput, match=said) as error:
        _ = opened([each.format(path) for each in data], tmp_path / "out").plan
    assert "\n" not in str(error.value)


def test_a_group_of_a_corpus_that_has_none_is_refused(tmp_path: Path):
    with pytest.raises(
        BadInput, match=r"no such file and no such group, because corpus demo is not a mixture; .*data\.corpus="
    ):
        open_job(JobFlags(recipe="gpt3_125m", scale="tiny", data=["books1=/nowhere"], output_dir=tmp_path))


@pytest.mark.parametrize(
    ("mixture", "said"),
    [
        ("[{name: a, weight: -2}]", r"invalid mixture\.0\.weight: got -2\.0, expected a number above 0"),
        (
            "[{name: a, wieght: 2}]",
            r"invalid key: got mixture\.0\.wieght, expected a key of mixture\.0; did you mean mixture\.0\.weight",
        ),
        ("[{name: a}]", r"invalid mixture\.0\.weight: got no value, expected a number"),
        ("[{name: a, weight: 1, sources: [{kind: tex, path: x}]}]", r"invalid mixture\.0\.sources\.0\.kind: got 'tex'"),
        ("[{name: a, weight: 1}, {name: a, weight: 1}]", r"invalid mixture: got \['a', 'a'\], expected each name once"),
    ],
)
def test_a_slip_in_a_corpus_file_is_said_with_its_place(mixture: str, said: str, tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(f"name: mine\nmixture: {mixture}\n")
    with pytest.raises(BadInput, match=said) as error:
        load_corpus(str(tmp_path / "mine.yaml"))
    assert "\n" not in str(error.value)


def corpus_file(folder: Path, weight: float = 3) -> str:
    if not folder.exists():
        stories(folder, "a", 0, 60)
        stories(folder, "b", 100, 20)
    (folder / "mine.yaml").write_text(
        f"name: mine\nmixture:\n  - {{name: a, weight: 1, sources: [{{kind: jsonl, path: a.jsonl}}]}}\n"
        f"  - {{name: b, weight: {weight}, sources: [{{kind: jsonl, path: b.jsonl}}]}}\n"
    )
    return str(folder / "mine.yaml")


def test_paths_of_groups_begin_at_the_folder_of_the_corpus_file(tmp_path: Path):
    corpus = load_corpus(corpus_file(tmp_path / "text"))
    assert [source.place for source in corpus.sources] == [str(tmp_path / f"text/{name}.jsonl") for name in "ab"]
    assert [group.sources for group in corpus.mixture] == [(source,) for source in corpus.sources]


def test_other_weights_make_another_corpus_of_the_same_text_and_vocabulary(tmp_path: Path):
    before = opened([corpus_file(tmp_path / "text")], tmp_path / "out").plan
    after = opened([corpus_file(tmp_path / "text", weight=4)], tmp_path / "out").plan
    assert [a.name for a, b in zip(before, after, strict=True) if a.folder != b.folder] == ["corpus", "run"]


def test_a_corpus_without_weights_has_the_causes_that_it_had(tmp_path: Path):
    plan = opened([str(stories(tmp_path / "x", "a", 0, 5))], tmp_path).plan
    assert "mixture" not in plan.text.causes["corpus"]
    assert plan.corpus.causes.keys() == {"text", "vocab", "marks"}


def test_a_mixture_beside_other_text_is_refused(tmp_path: Path):
    data = [corpus_file(tmp_path / "text"), str(tmp_path / "text/a.jsonl")]
    with pytest.raises(BadInput, match="--data mine: is a mixture, whose weights do not include other text"):
        opened(data, tmp_path / "out")


def test_rows_that_go_on_from_each_other_are_refused_before_anything_is_made(tmp_path: Path):
    flags = JobFlags(
        recipe="transformer_xl_base", scale="tiny", data=[corpus_file(tmp_path / "text")], output_dir=tmp_path
    )
    with pytest.raises(BadInput, match="corpus mine is a mixture, and sequences of packing stream continue each other"):
        open_job(flags)


def test_finished_rows_are_refused_before_anything_is_made(tmp_path: Path):
    job = opened([corpus_file(tmp_path / "text")], tmp_path / "out")
    with pytest.raises(BadInput, match="corpus mine is a mixture, and static training sequences ignore its weights"):
        stages.rows(job.recipe, job.plan.corpus, job.out)


@pytest.mark.slow
def test_the_card_says_what_the_run_reads_of_each_group(given: list[str], tmp_path: Path):
    """Counted again, row by row."""
    phases = (
        "phases=[{seq_length: 32, global_batch_size: 8, steps: 40}, {seq_length: 64, global_batch_size: 8, steps: 20}]"
    )
    job = opened(given, tmp_path / "out", "gpt3_125m", "optimizer.warmup_steps=5", phases)
    corpus_job.untracked(job, ("--direct_running_mode=in_memory",), ignore_progress)
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
        assert group.trained == pytest.approx(tokens[group.name], rel=0.06)  # the last row of a shard is short
        assert group.epochs == pytest.approx(epochs[group.name])
        assert group.trained / sum(tokens.values()) == pytest.approx(group.requested, abs=0.01)
    card = corpus_job.data_card
    markdown = card.save(known, {}, tmp_path)[0].read_text()
    assert "## Mixture" in markdown
    assert "| common\\_crawl | " in markdown
    assert markdown.index("| common\\_crawl") < markdown.index("| webtext2") < markdown.index("| wikipedia |")
    assert "| 59.41 % | 59." in markdown
