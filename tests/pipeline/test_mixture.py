"""Mixtures in the jobs: each shard has one group, the bytes are reproducible, and the manifest describes the groups."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import JsonlReader
from pipeline.readers import splits as sources
from pipeline.spec import Corpus, Dedup, MixtureGroup
from pipeline.steps import StaticExampleSpec, TextDirectory, encode_shard, materialise, plan, read_text
from preprocessing.errors import BadInput
from preprocessing.manifest import Ledger, Manifest
from preprocessing.masking import NoMasking
from preprocessing.objectives import CausalLM
from preprocessing.packing import Contiguous
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from tests.pipeline.conftest import story
from tests.pipeline.test_jobs import HERE, SMALL, TWO, build, content

SIZES = {"books": 20, "crawl": 90, "wiki": 12}  # documents
WEIGHTS = {"books": 8.0, "crawl": 60.0, "wiki": 33.0}
GPT = {"packing": Contiguous(unit="token"), "masking": NoMasking(), "objective": CausalLM()}

pytestmark = pytest.mark.usefixtures("many_parts")


@pytest.fixture
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small splits and small shards, so that a small group has several of each."""
    monkeypatch.setattr(sources, "SPLIT_BYTES", 3_000)
    monkeypatch.setattr(plan, "_LEAST_BYTES", 4_000)


@pytest.fixture
def mixture(write_jsonl: Callable[..., Path]) -> Corpus:
    """Three groups; crawl has two sources, and wiki also contains the first document of crawl."""
    first, groups = 0, []
    for name, size in SIZES.items():
        texts = [story(number) for number in range(first, first + size)]
        if name == "wiki":
            texts.append(story(SIZES["books"]))
        half = len(texts) // 2 if name == "crawl" else 0
        parts = [texts[:half], texts[half:]] if half else [texts]
        paths = [write_jsonl(part, f"{name}/{number}.jsonl") for number, part in enumerate(parts)]
        groups.append(
            MixtureGroup(name=name, weight=WEIGHTS[name], sources=tuple(JsonlReader(path=str(path)) for path in paths))
        )
        first += size
    return Corpus(name="mixed", mixture=tuple(groups), validation_ratio=0.1, test_ratio=0.1)


def reweighted(corpus: Corpus, **weights: float) -> Corpus:
    groups = tuple(replace(group, weight=weights.get(group.name, group.weight)) for group in corpus.mixture)
    return replace(corpus, mixture=groups)


def test_the_manifest_has_the_size_and_the_epochs_of_each_group(mixture: Corpus, tmp_path: Path) -> None:
    manifest = build(mixture, tmp_path, *HERE)
    assert Manifest.load(tmp_path / "corpus") == manifest
    infos = {info.name: info for info in manifest.shards if info.split == "train"}
    assert sorted(name for group in manifest.mixture.values() for name in group.shards) == sorted(infos)
    total = sum(info.tokens for info in infos.values())
    for name, group in manifest.mixture.items():
        mine = [infos[shard] for shard in group.shards]
        assert group.documents == sum(info.rows for info in mine)
        assert group.tokens == sum(info.tokens for info in mine)
        assert (group.weight, group.share) == (WEIGHTS[name], WEIGHTS[name] / 101)
        assert group.epochs == pytest.approx(group.share * total / group.tokens)
    assert len(manifest.mixture["crawl"].shards) > 1
    assert json.loads((tmp_path / "corpus/manifest.json").read_text())["mixture"]["wiki"]["weight"] == 33


def asked(corpus: Corpus, epochs: dict[str, float] | None = None, alpha: float | None = None) -> Corpus:
    """The corpus with epochs, or with an exponent, instead of weights."""
    groups = tuple(replace(one, weight=None, epochs=(epochs or {}).get(one.name)) for one in corpus.mixture)
    return replace(corpus, mixture=groups, mixture_sampling_alpha=alpha)


@pytest.mark.slow
def test_weights_by_size_and_by_epochs_reuse_the_shards(
    mixture: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest has the weights that follow from the tokens; no document is encoded again."""
    before = build(mixture, tmp_path, *HERE)
    inodes = [(tmp_path / "corpus" / info.name).stat().st_ino for info in before.shards]
    monkeypatch.setattr("pipeline.jobs.encode_shard", lambda *_, **__: pytest.fail("encodes a shard"))
    tokens = {name: group.tokens for name, group in before.mixture.items()}
    wanted = {"books": 2.0, "crawl": 0.5, "wiki": 4.0}
    for corpus, weights in (
        (reweighted(mixture, wiki=1.0), WEIGHTS | {"wiki": 1.0}),
        (asked(mixture, alpha=0.5), {name: size**0.5 for name, size in tokens.items()}),
        (asked(mixture, alpha=0.0), dict.fromkeys(tokens, 1.0)),
        (asked(mixture, wanted), {name: wanted[name] * size for name, size in tokens.items()}),
    ):
        out = tmp_path / f"{corpus.weight_causes}"
        reuse = [tmp_path / "nowhere", tmp_path / "corpus"]
        made = encode_corpus(tmp_path / "text", tmp_path / "vocab", corpus, out, HERE, reuse=reuse)
        assert made == Manifest.load(out)
        assert made.shards == before.shards
        assert [(out / info.name).stat().st_ino for info in made.shards] == inodes
        assert made.digest != before.digest
        assert made.spec_hash != before.spec_hash
        for name, group in made.mixture.items():
            assert group.weight == pytest.approx(weights[name])
            assert group.share == pytest.approx(weights[name] / sum(weights.values()))
        plain = json.loads((out / "manifest.json").read_text())["mixture"]
        assert {"requested_epochs" in group for group in plain.values()} == {corpus.mixture[0].epochs is not None}
    store = TokenStore.open(out, "train")
    rows = ExampleDataset(store, Vocab.load(store.vocab_dir), ExampleSpec(**GPT), length=32)
    for found, epochs in zip(rows.count_realized_shares(round(rows.count_pass())), (2.0, 0.5, 4.0), strict=True):
        assert found.epochs == pytest.approx(epochs, abs=1 / rows.count(0) + 0.02)


@pytest.mark.slow
def test_damaged_shards_of_other_weights_are_not_reused(mixture: Corpus, tmp_path: Path) -> None:
    before = build(mixture, tmp_path, *HERE)
    damaged = tmp_path / "corpus" / before.shards[0].name
    content_before = damaged.read_bytes()
    damaged.write_bytes(content_before[:-1] + b"x")
    out, reuse = tmp_path / "again", [tmp_path / "corpus"]
    made = encode_corpus(tmp_path / "text", tmp_path / "vocab", reweighted(mixture, wiki=1), out, HERE, reuse=reuse)
    assert (out / damaged.name).read_bytes() == content_before
    assert made.shards == before.shards
    assert (out / damaged.name).stat().st_ino != damaged.stat().st_ino


@pytest.mark.slow
def test_shards_are_copied_where_there_are_no_hard_links(
    mixture: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("Operation not permitted")

    before = build(mixture, tmp_path, *HERE)
    monkeypatch.setattr("os.link", refuse)
    monkeypatch.setattr("pipeline.jobs.encode_shard", lambda *_, **__: pytest.fail("encodes a shard"))
    out, reuse = tmp_path / "again", [tmp_path / "corpus"]
    encode_corpus(tmp_path / "text", tmp_path / "vocab", reweighted(mixture, wiki=1), out, HERE, reuse=reuse)
    for info in before.shards:
        assert (out / info.name).read_bytes() == (tmp_path / "corpus" / info.name).read_bytes()


@pytest.mark.slow
def test_a_training_shard_has_one_group_and_held_out_splits_have_all(mixture: Corpus, tmp_path: Path) -> None:
    manifest = build(mixture, tmp_path, *HERE)
    texts = TextDirectory.load(tmp_path / "text")
    begins = np.cumsum([0, *SIZES.values()])
    found: dict[str, set[str]] = {}
    for shard in texts.shards:
        stories = [int(document.text.split()[1].strip(".")) for document in texts.documents(shard.start, shard.stop)]
        names = [list(SIZES)[int(np.searchsorted(begins, number, side="right")) - 1] for number in stories]
        if shard.group:
            assert shard.name in manifest.mixture[shard.group].shards
            twice = SIZES["books"]  # the story in two groups; the first listed group keeps it
            assert {name for name, number in zip(names, stories, strict=True) if number != twice} <= {shard.group}
        found.setdefault(shard.name.split("-")[0], set()).update(names)
    assert all(shard.group for shard in texts.shards if shard.name.startswith("train"))
    assert found["train"] == set(SIZES)
    assert len(found["test"]) > 1
    assert manifest.ledger.dropped["duplicate"].documents == 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize("changes", [{"dedup": Dedup(minhash=True, line_min_chars=60)}, {"document_order": "input"}])
def test_groups_stay_separate_with_deduplication_and_input_order(
    mixture: Corpus, tmp_path: Path, changes: dict[str, Any]
) -> None:
    manifest = build(replace(mixture, **changes), tmp_path, *HERE)
    texts = TextDirectory.load(tmp_path / "text")
    begins = np.cumsum([0, *SIZES.values()])
    for shard in texts.shards:
        stories = [int(document.text.split()[1].strip(".")) for document in texts.documents(shard.start, shard.stop)]
        names = {list(SIZES)[int(np.searchsorted(begins, n, side="right")) - 1] for n in stories if n != SIZES["books"]}
        assert not shard.group or names <= {shard.group}
    assert set(manifest.mixture) == set(SIZES)
    assert manifest.ledger.is_balanced()


class TestEqualBytes:
    @pytest.fixture
    def first(self, mixture: Corpus, tmp_path: Path) -> dict[str, bytes]:
        build(mixture, tmp_path / "first", *HERE)
        return content(tmp_path / "first" / "corpus")

    def test_with_the_sources_of_a_group_in_another_order(
        self, mixture: Corpus, tmp_path: Path, first: dict[str, bytes]
    ) -> None:
        turned = [replace(group, sources=group.sources[::-1]) for group in mixture.mixture]
        build(replace(mixture, sources=(), mixture=tuple(turned)), tmp_path / "second", *HERE)
        assert content(tmp_path / "second" / "corpus") == first

    @pytest.mark.slow
    def test_of_a_stopped_and_resumed_job(
        self, mixture: Corpus, tmp_path: Path, first: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out, done = tmp_path / "second", list[str]()
        read_text(mixture, out / "text", HERE)
        train_vocab(out / "text", SMALL, out / "vocab")

        def encode_three_shards(shard: Any, *rest: Any, **identity: str) -> None:
            if len(done) == 3:
                raise KeyboardInterrupt
            done.append(shard.name)
            encode_shard(shard, *rest, **identity)

        with monkeypatch.context() as patch:
            patch.setattr("pipeline.jobs.encode_shard", encode_three_shards)
            with pytest.raises((KeyboardInterrupt, RuntimeError)):
                encode_corpus(out / "text", out / "vocab", mixture, out / "corpus", HERE)
        assert not (out / "corpus" / "manifest.json").exists()
        encode_corpus(out / "text", out / "vocab", mixture, out / "corpus", HERE)
        assert content(out / "corpus") == first

    @pytest.mark.slow
    def test_with_two_processes(self, mixture: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # the default value, because the patch does not reach a second process
        monkeypatch.setattr(plan, "_LEAST_BYTES", 1 << 20)
        build(mixture, tmp_path / "first", *HERE)
        build(mixture, tmp_path / "second", *TWO)
        assert content(tmp_path / "second" / "corpus") == content(tmp_path / "first" / "corpus")

    @pytest.mark.slow
    def test_of_text_and_shards_with_other_weights(
        self, mixture: Corpus, tmp_path: Path, first: dict[str, bytes]
    ) -> None:
        manifest = build(reweighted(mixture, wiki=3.0), tmp_path / "second", *HERE)
        second = content(tmp_path / "second" / "corpus")
        assert [name for name in first if first[name] != second[name]] == ["manifest.json"]
        assert manifest.mixture["wiki"].share == pytest.approx(3 / 71)

    def test_of_a_corpus_without_weights(self, mixture: Corpus, tmp_path: Path) -> None:
        plain = Corpus(name="mixed", sources=mixture.sources, validation_ratio=0.1, test_ratio=0.1)
        manifest = build(plain, tmp_path / "plain", *HERE)
        assert manifest.mixture == {}
        assert "mixture" not in json.loads((tmp_path / "plain/corpus/manifest.json").read_text())
        assert "group" not in (tmp_path / "plain/text/text.json").read_text()
        assert TokenStore.open(tmp_path / "plain/corpus", "train").groups == ()


SHARED = 5  # number of documents in both groups


@pytest.fixture(params=[("crawl", "books"), ("web", "wiki"), ("a", "b"), ("b", "a")], ids="-".join)
def overlapping_groups(request: pytest.FixtureRequest, write_jsonl: Callable[..., Path]) -> dict[str, MixtureGroup]:
    """Two groups that share documents, a line and near-duplicates, in files of various names."""
    ends = [f"The very same line stands at the end of number {number}, and it is long." for number in range(9)]
    one = [story(number) for number in range(20)] + [story(100) + "\n" + ends[number] for number in range(1)]
    two = [story(number) for number in range(SHARED)] + [story(number) for number in range(40, 50)]
    two += [story(101) + "\n" + ends[number] for number in range(1)]
    two += [story(number) + " One word more." for number in range(15, 18)]
    groups = {}
    for name, file, texts in zip(("big", "small"), request.param, (one, two), strict=True):
        path = write_jsonl(texts, f"{file}.jsonl")
        groups[name] = MixtureGroup(name=name, weight=1, sources=(JsonlReader(path=str(path)),))
    return groups


@pytest.mark.one_in(8)
@pytest.mark.parametrize("order", [("big", "small"), ("small", "big")], ids="-".join)
def test_shared_text_stays_in_the_first_listed_group(
    overlapping_groups: dict[str, MixtureGroup], order: tuple[str, str], tmp_path: Path
) -> None:
    """Equal documents, near-duplicates and lines stay in the first group, for any file names and group sizes."""
    mixed = tuple(overlapping_groups[name] for name in order)
    corpus = Corpus(
        name="m", mixture=mixed, dedup=Dedup(minhash=True, line_min_chars=60), validation_ratio=0.1, test_ratio=0
    )
    texts = read_text(corpus, tmp_path / "text", HERE)
    ledgers = {name: group["ledger"] for name, group in texts.groups.items()}
    lost = {
        name: {reason: count["documents"] or count["bytes"] for reason, count in ledger["dropped"].items()}
        for name, ledger in ledgers.items()
    }
    first, last = order
    assert {name: ledger["seen"]["documents"] for name, ledger in ledgers.items()} == {"big": 21, "small": 19}
    assert not {"duplicate", "near_duplicate", "repeated_line"} & {name for name, num in lost[first].items() if num}
    assert lost[last]["duplicate"] == SHARED
    assert lost[last]["near_duplicate"] == 3
    assert lost[last]["repeated_line"] > 60
    for group in texts.groups.values():
        ledger = Ledger.from_dict(group["ledger"])
        assert ledger.is_balanced()
        trained = sum(
            shard.stop - shard.start for shard in texts.shards if shard.group and group is texts.groups[shard.group]
        )
        assert ledger.kept.documents == trained + sum(group["held_out"].values())
    assert sum(sum(group["held_out"].values()) for group in texts.groups.values()) >= 2


@pytest.mark.one_in(4)
def test_text_of_a_reference_corpus_is_removed_from_each_group(
    overlapping_groups: dict[str, MixtureGroup], tmp_path: Path
) -> None:
    (tmp_path / "known.txt").write_text("\n\n".join(story(number) for number in (0, 7, 41)) + "\n")
    known = Dedup(reference_corpora=(f"paragraphs:{tmp_path / 'known.txt'}",))
    corpus = Corpus(name="m", mixture=tuple(overlapping_groups.values()), dedup=known, validation_ratio=0, test_ratio=0)
    texts = read_text(corpus, tmp_path / "text", HERE)
    dropped = {name: group["ledger"]["dropped"] for name, group in texts.groups.items()}
    assert (dropped["big"]["known"]["documents"], dropped["small"]["known"]["documents"]) == (2, 2)
    assert dropped["small"]["duplicate"]["documents"] == SHARED - 1


@pytest.mark.one_in(4)
def test_the_manifest_has_the_kept_and_dropped_documents_of_each_group(
    overlapping_groups: dict[str, MixtureGroup], tmp_path: Path
) -> None:
    manifest = build(
        Corpus(name="m", mixture=tuple(overlapping_groups.values()), validation_ratio=0.1, test_ratio=0.1),
        tmp_path,
        *HERE,
    )
    assert Manifest.load(tmp_path / "corpus") == manifest
    both = [Ledger.from_dict(group.ledger) for group in manifest.mixture.values()]
    merged = both[0].merge(both[1])
    assert merged.seen.documents == manifest.ledger.seen.documents
    assert merged.kept.documents == manifest.ledger.kept.documents
    for name in ("validation", "test"):
        assert sum(group.held_out[name] for group in manifest.mixture.values()) == manifest.splits[name]["rows"]


def test_training_reads_the_groups_by_their_weights(mixture: Corpus, tmp_path: Path) -> None:
    build(mixture, tmp_path, *HERE)
    store = TokenStore.open(tmp_path / "corpus", "train")
    rows = ExampleDataset(store, Vocab.load(store.vocab_dir), ExampleSpec(**GPT), length=32)
    addresses = rows.addresses(0, 2_000)
    for number, group in enumerate(store.groups):
        tokens = [len(rows.row(*at)["input_ids"]) for at in addresses if at[1] % 3 == number]
        assert sum(tokens) / 32 / 2_000 == pytest.approx(group.share, abs=0.01)
    assert TokenStore.open(tmp_path / "corpus", "validation").groups == ()


@pytest.mark.slow
def test_the_vocabulary_equals_that_of_the_same_text_without_weights(mixture: Corpus, tmp_path: Path) -> None:
    """A few MB are read completely; of more text, the documents with the smallest keys, whatever their group."""
    build(mixture, tmp_path / "mixed", *HERE)
    build(
        Corpus(name="mixed", sources=mixture.sources, validation_ratio=0.1, test_ratio=0.1), tmp_path / "plain", *HERE
    )
    assert Vocab.load(tmp_path / "mixed/corpus/vocab").hash == Vocab.load(tmp_path / "plain/corpus/vocab").hash


@pytest.mark.slow
def test_a_sample_of_a_mixture_contains_all_groups(
    mixture: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.jobs import _sample

    texts = read_text(mixture, tmp_path / "text", HERE)
    some = list(_sample(texts, 12_000))
    plain = read_text(
        Corpus(name="x", sources=mixture.sources, validation_ratio=0.1, test_ratio=0.1), tmp_path / "plain", HERE
    )
    assert sorted(some) == sorted(_sample(plain, 12_000))
    monkeypatch.setattr(plan, "_SAMPLE_BYTES", 3_000)
    heads = [document.text for document in texts.sample]
    group_of = {
        document.text: shard.group for shard in texts.shards for document in texts.documents(shard.start, shard.stop)
    }
    assert {group_of[text] for text in heads} == set(SIZES)


def test_a_group_without_text_is_named(mixture: Corpus, tmp_path: Path) -> None:
    groups = (*mixture.mixture, MixtureGroup(name="webtext2", weight=22))
    with pytest.raises(BadInput, match=r"corpus mixed: mixture groups without text: webtext2; pass --data GROUP=PATH"):
        read_text(replace(mixture, sources=(), mixture=groups), tmp_path / "text", HERE)
    assert not (tmp_path / "text").exists()


def test_a_group_without_remaining_documents_is_named(
    mixture: Corpus, tmp_path: Path, write_jsonl: Callable[..., Path]
) -> None:
    path = write_jsonl([story(0), story(1)], "again/0.jsonl")  # both documents are in books
    groups = (*mixture.mixture, MixtureGroup(name="zines", weight=1, sources=(JsonlReader(path=str(path)),)))
    with pytest.raises(BadInput, match=r"mixture groups without training documents: zines"):
        read_text(replace(mixture, sources=(), mixture=groups), tmp_path / "text", HERE)
    assert not (tmp_path / "text/text.json").exists()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([("a", -1)], "invalid mixture.weight: got -1, expected a number above 0"),
        ([("a", 0)], "invalid mixture.weight: got 0, expected a number above 0"),
        ([("a", float("inf"))], "mixture.weight: got inf"),
        ([("a", float("nan"))], "mixture.weight: got nan"),
        ([("a b", 1)], "invalid mixture.name: got 'a b', expected letters"),
        ([("a", 1), ("a", 2)], "invalid mixture: got .*, expected unique group names"),
        ([("a", None)], "mixture.0.weight: got no value, expected a number above 0, `epochs` instead, or mixture_sa"),
        ([("a", 1), ("b", None)], "mixture.1.weight: got no value, expected a number above 0, like the other groups"),
    ],
)
def test_invalid_mixtures_are_refused(groups: list[tuple[str, float | None]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Corpus(name="x", mixture=tuple(MixtureGroup(name=name, weight=weight) for name, weight in groups))


@pytest.mark.parametrize(
    ("groups", "alpha", "message"),
    [
        ([{"weight": 1, "epochs": 2}], None, "expected either weights or epochs in all groups"),
        ([{"weight": 1}, {"epochs": 2}], None, "expected either weights or epochs in all groups"),
        ([{"epochs": 0}], None, "invalid mixture.epochs: got 0, expected a number above 0"),
        ([{"weight": 1}], 0.3, "invalid mixture.0.weight: got 1, expected none with mixture_sampling_alpha"),
        ([{"epochs": 1}], 0.3, "invalid mixture.0.epochs: got 1, expected none with mixture_sampling_alpha"),
        ([{}], -0.3, "invalid mixture_sampling_alpha: got -0.3, expected a number from 0"),
        ([], 0.3, "invalid mixture_sampling_alpha: got 0.3, expected none without `mixture`"),
    ],
)
def test_weights_epochs_and_sizes_exclude_each_other(
    groups: list[dict[str, float]], alpha: float | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Corpus(
            name="x",
            mixture=tuple(MixtureGroup(name="ab"[number], **group) for number, group in enumerate(groups)),
            mixture_sampling_alpha=alpha,
        )


def test_a_source_belongs_to_exactly_one_group() -> None:
    one = JsonlReader(path="a")
    with pytest.raises(ValueError, match="every source in exactly one group"):
        Corpus(
            name="x",
            mixture=(
                MixtureGroup(name="a", weight=1, sources=(one,)),
                MixtureGroup(name="b", weight=1, sources=(one,)),
            ),
        )
    with pytest.raises(ValueError, match="no sources next to `mixture`"):
        Corpus(name="x", sources=(JsonlReader(path="b"),), mixture=(MixtureGroup(name="a", weight=1, sources=(one,)),))


def test_shares_are_weights_divided_by_their_sum() -> None:
    corpus = Corpus(name="x", mixture=(MixtureGroup(name="a", weight=60), MixtureGroup(name="b", weight=41)))
    assert corpus.shares == {"a": 60 / 101, "b": 41 / 101}


@pytest.mark.slow
def test_static_sequences_of_a_mixture_are_refused(mixture: Corpus, tmp_path: Path) -> None:
    build(mixture, tmp_path, *HERE)
    static = StaticExampleSpec(str(tmp_path / "corpus"), "train", ExampleSpec(**GPT, static_masks=1), 32)
    with pytest.raises(BadInput, match="static rows do not support the weights of a mixture"):
        materialise(static, tmp_path / "rows", HERE)
