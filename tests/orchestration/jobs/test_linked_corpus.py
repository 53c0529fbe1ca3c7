"""`--data ADDRESS` of a finished corpus: a job links it instead of building one."""

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.cli.shared import warn_of_few_rows
from orchestration.jobs import JobFlags, open_job
from orchestration.jobs import corpus as corpus_stage
from orchestration.jobs.epoch_length import count_batches_of_tokens
from orchestration.jobs.find_documents import find_documents
from orchestration.jobs.linked_corpus import _find_difference
from orchestration.jobs.runs import require_corpus
from orchestration.terminal import announce, print_plan
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest, MixtureGroupStats
from preprocessing.remote_corpus import REMOTE
from preprocessing.shard_cache import CacheSettings
from preprocessing.shards import TokenStore
from preprocessing.tokenization import ByteLevelBPE, WordPiece, train
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


def test_epochs_are_counted_as_soon_as_it_is_linked(flags: JobFlags, tmp_path: Path) -> None:
    phases = 'phases=[{"seq_length": 64, "global_batch_size": 4, "epochs": 3}]'
    flags = replace(flags, overrides=[*flags.overrides, phases, "optimizer.warmup_steps=1"])
    job = open_job(flags)
    assert job.has_estimated_steps
    corpus_stage.corpus(job, (), lambda values: None)
    counted = open_job(flags)
    assert not counted.has_estimated_steps
    assert counted.recipe.num_steps > 0
    shutil.rmtree(tmp_path / "cache")
    own = f"cluster.engine.shard_cache_dir={tmp_path / 'own'}"  # another cache than that of the link
    assert open_job(replace(flags, overrides=[own, *flags.overrides[1:]])).recipe == counted.recipe
    assert any((tmp_path / "own").iterdir())
    assert not (tmp_path / "cache").exists()


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


def mix(corpus: Path, **requested: float) -> Manifest:
    """Divide the shards of the corpus into the groups a, b and c, and upload its manifest."""
    manifest = Manifest.load(corpus)
    shards = [shard for shard in manifest.shards if shard.split == "train"]
    groups = {
        name: MixtureGroupStats(
            weight, weight / 4, shard.rows, shard.tokens, 1.0, (shard.name,), requested_epochs=requested.get(name, 0.0)
        )
        for name, weight, shard in zip("abc", (1.0, 3.0, 0.0), shards, strict=True)
    }
    manifest = replace(manifest, mixture=groups)
    manifest.save(corpus)
    upload(corpus, ADDRESS)
    return manifest


PHASES = "phases=[{seq_length: 64, global_batch_size: 4, steps: 3}, {seq_length: 64, global_batch_size: 4, steps: 3%s}]"


def test_a_recipe_may_weigh_the_groups_of_a_linked_mixture(flags: JobFlags, corpus: Path) -> None:
    mix(corpus)
    own = ["data.mixture={a: 1, c: 1}", PHASES % ", mixture: {b: 1}", "optimizer.warmup_steps=1"]
    job = open_job(replace(flags, overrides=[*flags.overrides, *own]))
    assert job.source_notes[1:4] == [
        "mixture: fractions of the training tokens: 25.00 % a, 75.00 % b, 0.00 % c",
        "data.mixture: fractions of the training tokens: 50.00 % a, 50.00 % c (weights are divided by their sum, 2)",
        "phases.1.mixture: fractions of the training tokens: 100.00 % b",
    ]
    assert [phase.mixture for phase in job.recipe.mixed_phases] == [{"a": 1.0, "c": 1.0}, {"b": 1.0}]
    for wrong in ("data.mixture={web: 1}", PHASES % ", mixture: {web: 1}"):
        with pytest.raises(
            BadInput, match=r"^bert_base: invalid .*got web, expected a group of the corpus \(a, b, c\)"
        ):
            open_job(replace(flags, overrides=[*flags.overrides, wrong, "optimizer.warmup_steps=1"]))
    with pytest.raises(
        BadInput, match=r"^transformer_xl_base: corpus mini_world is a mixture, and sequences of packing"
    ):
        open_job(replace(flags, recipe="transformer_xl_base", overrides=["data.tokenizer={kind: wordpiece}"]))


@pytest.mark.parametrize("is_linked", [False, True])
def test_an_epoch_by_token_has_the_requested_epochs_of_each_group(
    flags: JobFlags, corpus: Path, is_linked: bool
) -> None:
    manifest = mix(corpus, a=2.0, b=0.5, c=3.0)
    sizes = [group.tokens for group in manifest.mixture.values()]
    phases = "phases=[{seq_length: 8, global_batch_size: 1, epochs: 1, batch_unit: token%s}]"
    if is_linked:
        corpus_stage.corpus(open_job(flags), (), lambda values: None)
    for mixture, tokens in (
        ("", 2 * sizes[0] + 0.5 * sizes[1] + 3 * sizes[2]),
        (", mixture: {b: 1}", sizes[1]),
        (", mixture: {b: 1, c: 1}", sizes[1] + sizes[2]),
    ):
        job = open_job(replace(flags, overrides=[*flags.overrides, phases % mixture, "optimizer.warmup_steps=1"]))
        assert (job.recipe.num_steps, job.has_estimated_steps) == (math.ceil(tokens / 8), False)


def test_a_group_without_weight_has_no_part_in_an_epoch(flags: JobFlags, corpus: Path) -> None:
    recipe, manifest = open_job(flags).recipe, mix(corpus)
    phase = replace(recipe.phases[0], seq_length=8, global_batch_size=2)
    a, b, _ = (group.tokens for group in manifest.mixture.values())
    assert count_batches_of_tokens(manifest, recipe, phase) == (a + b) / 16


def test_a_damaged_manifest_is_not_taken_for_text(flags: JobFlags, corpus: Path) -> None:
    content = (corpus / "manifest.json").read_bytes()
    (corpus / "manifest.json").write_bytes(content[: len(content) // 2])
    upload(corpus, ADDRESS)
    with pytest.raises(
        BadInput, match=rf"^{ADDRESS}/manifest.json: is damaged, perhaps incomplete; copy the directory"
    ):
        open_job(flags)


def test_a_corpus_without_a_protocol_is_named_with_one(flags: JobFlags, corpus: Path) -> None:
    with pytest.raises(BadInput, match=rf"is a finished corpus and not text; use --data {corpus.as_uri()}$"):
        open_job(replace(flags, data=[str(corpus)]))
    assert open_job(replace(flags, data=[corpus.as_uri()])).linked


def test_the_tokenizer_must_be_that_of_the_files(flags: JobFlags, corpus: Path) -> None:
    """Before and after the corpus is linked."""
    cased = replace(flags, overrides=[*flags.overrides, "data.tokenizer.lowercase=false"])
    other = corpus / "other.txt"
    other.write_text((corpus / "pieces.txt").read_text().replace("w9\n", "w9a\n"))
    of_file = [f"data.tokenizer.path={corpus / 'pieces.txt'}", f"data.tokenizer.path={other}"]
    for _ in range(2):
        with pytest.raises(
            BadInput, match=r"^bert_base: invalid data.tokenizer: got lowercase false, expected true, as"
        ):
            open_job(cased)
        with pytest.raises(BadInput, match=r"other.txt \(hash \w{12}\), expected the hash \w{12}, as in throttled"):
            open_job(replace(flags, overrides=[*flags.overrides, of_file[1]]))
        same = open_job(replace(flags, overrides=[*flags.overrides, of_file[0]]))
        corpus_stage.corpus(same, (), lambda values: None)


def test_special_tokens_and_sentinels_must_be_those_of_the_files(corpus: Path) -> None:
    vocab = train(WordPiece(vocab_size=1_000, path=str(corpus / "pieces.txt")), ())
    bytes_of = ByteLevelBPE(special_tokens="gpt2", vocab_size=300)
    assert _find_difference(vocab, WordPiece()) == ""
    assert _find_difference(vocab, bytes_of) == "got the special tokens sep, expected cls, mask, pad, sep, unk"
    assert _find_difference(replace(vocab, sentinels=2), WordPiece()).startswith("got the special tokens cls, mask")


def test_a_mixture_by_size_may_be_replaced(flags: JobFlags, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Some words.\n")
    file = tmp_path / "sizes.yaml"
    file.write_text(f"""name: sizes
mixture_sampling_alpha: 0.5
mixture:
  - {{name: a, sources: [{{kind: text, path: {tmp_path / "text.txt"}}}]}}
""")
    of_file = [*flags.overrides, f"data.corpus={file}"]
    assert open_job(replace(flags, overrides=of_file)).corpus.mixture_sampling_alpha is None
    text = open_job(replace(flags, overrides=of_file, data=[str(tmp_path / "text.txt")]))
    assert (text.corpus.mixture, text.corpus.mixture_sampling_alpha) == ((), None)


def test_a_document_is_searched_in_the_cache_of_the_job_and_split_by_split(
    flags: JobFlags, corpus: Path, tmp_path: Path
) -> None:
    job = open_job(flags)
    corpus_stage.corpus(job, (), lambda values: None)
    folder, cache = job.plan.corpus.folder, CacheSettings(str(tmp_path / "other cache"))
    key = TokenStore.open(corpus, "train").shards[2].key(1).hex()
    found = find_documents(folder, key, False, lambda values: None, cache).documents
    assert [(each.split, each.shard, each.row) for each in found] == [("train", 2, 1)]
    assert len(list((tmp_path / "other cache").glob("*.arrow"))) == 3  # none of the validation split
    with pytest.raises(BadInput, match="the beginning of 4 keys"):
        find_documents(folder, key[:31], False, lambda values: None, cache)
    assert len(list((tmp_path / "other cache").glob("*.arrow"))) == 4
    assert not list((tmp_path / "cache").glob("*.arrow"))


def test_more_held_out_text_is_advised_only_where_it_can_be_set(
    flags: JobFlags, caplog: pytest.LogCaptureFixture
) -> None:
    flags = replace(flags, overrides=[*flags.overrides, "eval_tasks=[next_sentence]"])
    corpus_stage.corpus(open_job(flags), (), lambda values: None)
    warn_of_few_rows(open_job(flags))
    assert "hold out more of the text where the corpus is made (test_ratio in its corpus file)" in caplog.text
    assert "--holdout-ratio" not in caplog.text
