"""`--data ADDRESS` of a finished corpus: a job links it instead of building one."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.jobs import JobFlags, open_job
from orchestration.jobs import corpus as corpus_stage
from orchestration.jobs.runs import require_corpus
from orchestration.terminal import announce, print_plan
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from preprocessing.remote_corpus import REMOTE
from preprocessing.shards import TokenStore
from tests.remote_stores import ThrottledStore, sharded_corpus, upload

ADDRESS = "throttled://store/mini"


@pytest.fixture(autouse=True)
def corpus(tmp_path: Path) -> Iterator[Path]:
    ThrottledStore.reset()
    upload(folder := sharded_corpus(tmp_path / "local", 3, 4), ADDRESS)
    yield folder
    ThrottledStore.reset()


@pytest.fixture
def flags(tmp_path: Path) -> JobFlags:
    cache = f"cluster.engine.shard_cache_dir={tmp_path / 'cache'}"
    return JobFlags(recipe="bert_base", scale="tiny", data=[ADDRESS], output_dir=tmp_path / "out", overrides=[cache])


def test_a_corpus_in_a_store_is_linked_and_read(
    flags: JobFlags, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = open_job(flags)
    assert (job.corpus.name, job.plan.corpus.state) == ("mini_world", "due")
    announce(job.plan, job.source_notes)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"{ADDRESS}: a finished corpus of 0.00 GB: ")
    assert [line.split(":")[0] for line in lines[1:]] == ["corpus", "run"]
    assert list(print_plan(job.plan, "").data["stages"]) == ["corpus", "run"]
    with pytest.raises(BadInput, match="this corpus is not made yet"):
        require_corpus(job)
    assert corpus_stage.corpus(job, (), lambda values: None) == Manifest.load(corpus)
    folder = require_corpus(open_job(flags))
    assert json.loads((folder / REMOTE).read_text())["address"] == ADDRESS
    assert job.pretraining().corpus == str(folder)
    opened = TokenStore.open(folder, "train")  # in the cache that the link names
    assert opened.shards[1].ids_T.tolist() == TokenStore.open(corpus, "train").shards[1].ids_T.tolist()
    assert len(list((tmp_path / "cache").glob("*.arrow"))) == 1


def test_its_run_depends_on_the_content_and_not_on_the_address(flags: JobFlags, corpus: Path) -> None:
    upload(corpus, "throttled://store/moved")
    one, moved = open_job(flags), open_job(replace(flags, data=["throttled://store/moved/"]))
    assert one.plan.run.folder == moved.plan.run.folder
    manifest = Manifest.load(corpus)
    replace(manifest, text_hash="other").save(corpus)
    upload(corpus, ADDRESS)
    assert open_job(flags).plan.run.folder != one.plan.run.folder


def test_epochs_are_counted_as_soon_as_it_is_linked(flags: JobFlags) -> None:
    phases = 'phases=[{"seq_length": 64, "global_batch_size": 4, "epochs": 3}]'
    flags = replace(flags, overrides=[*flags.overrides, phases, "optimizer.warmup_steps=1"])
    job = open_job(flags)
    assert job.has_estimated_steps
    corpus_stage.corpus(job, (), lambda values: None)
    counted = open_job(flags)
    assert not counted.has_estimated_steps
    assert counted.recipe.num_steps > 0


def test_what_does_not_fit_is_refused_in_a_line(flags: JobFlags, tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"gpt2: invalid data.tokenizer: got byte_level_bpe .* expected wordpiece with at"
    ):
        open_job(replace(flags, recipe="gpt2"))
    small = replace(flags, overrides=["data.tokenizer.vocab_size=300"])
    with pytest.raises(BadInput, match="got wordpiece with 300 rows, expected wordpiece with at least 467"):
        open_job(small)
    with pytest.raises(BadInput, match="is a finished corpus, which no text can join; use it as the only --data"):
        open_job(replace(flags, data=[ADDRESS, str(tmp_path)]))
    with pytest.raises(BadInput, match="is a finished corpus with its own splits; leave it out"):
        open_job(replace(flags, holdout_ratio=0.1))
    with pytest.raises(BadInput, match="no such file or directory; check the URL"):
        open_job(replace(flags, data=["throttled://store/nothing"]))
    with pytest.raises(BadInput, match="is a finished corpus; make its card where it was made"):
        corpus_stage.corpus(open_job(flags), (), lambda values: None, with_card=True)


@pytest.mark.parametrize("value", ["relative/dir", "s3://bucket/cache"])
def test_the_cache_must_be_on_this_machine(flags: JobFlags, value: str) -> None:
    with pytest.raises(BadInput, match="shard_cache_dir"):
        open_job(replace(flags, overrides=[f"cluster.engine.shard_cache_dir={value}"]))
    with pytest.raises(BadInput, match="shard_cache_gb"):
        open_job(replace(flags, overrides=["cluster.engine.shard_cache_gb=0"]))


def test_windows_have_no_effect_on_other_recipes(flags: JobFlags) -> None:
    plain = open_job(flags).recipe
    assert "shuffle_window_shards" not in plain.science["data"]
    windows = open_job(replace(flags, overrides=[*flags.overrides, "data.shuffle_window_shards=2"])).recipe
    assert windows.sampling.shuffle_window_shards == 2
    assert windows.hash != plain.hash
    ordered = replace(flags, recipe="transformer_xl_base", overrides=["data.shuffle_window_shards=2"])
    with pytest.raises(BadInput, match="expected 0, because these sequences are not shuffled"):
        open_job(ordered)
