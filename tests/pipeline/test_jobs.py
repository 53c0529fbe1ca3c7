"""The jobs end to end on small text: content of the corpus, the ledger, and reproducible bytes."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs import _sample_of_languages, encode_corpus, train_vocab
from pipeline.readers import JsonlReader, TextReader, WarcReader, WikiExtractorReader
from pipeline.readers import splits as sources
from pipeline.spec import Clean, Corpus
from pipeline.steps import TextDirectory, plan, read_text
from pipeline.steps import encode as encode_module
from preprocessing.errors import BadInput
from preprocessing.manifest import Count, Manifest
from preprocessing.shards import TokenStore
from preprocessing.text import text_key
from preprocessing.tokenization import ByteLevelBPE, SentencePieceBPE, TokenizerSpec, Vocab, WordPiece, train
from preprocessing.tokenization.encoders import find_obstacle
from tests.pipeline.conftest import story
from tests.pipeline.formats import web_record

SMALL = WordPiece(vocab_size=200)
TWO = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
HERE = ("--direct_running_mode=in_memory",)
HELD_OUT = {"validation_ratio": 0.1, "test_ratio": 0.1}


def build(corpus: Corpus, out: Path, *beam_args: str, vocab: Any = SMALL, report: Any = None) -> Manifest:
    """Run all three jobs. `report` receives the events of the last one."""
    read_text(corpus, out / "text", beam_args)
    train_vocab(out / "text", vocab, out / "vocab")
    return encode_corpus(out / "text", out / "vocab", corpus, out / "corpus", beam_args, report)


def corpus_of(path: Path, **changes: Any) -> Corpus:
    return Corpus(**{"name": "stories", "sources": (JsonlReader(path=str(path)),), **HELD_OUT, **changes})


def content(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a directory."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small splits and small shards, so that a small corpus has several of each."""
    monkeypatch.setattr(sources, "SPLIT_BYTES", 3_000)
    monkeypatch.setattr(plan, "_LEAST_BYTES", 2_000)


@pytest.fixture
def stories(write_jsonl: Callable[..., Path]) -> Path:
    return write_jsonl([story(number) for number in range(60)])


@pytest.mark.usefixtures("many_parts")
def test_the_shards_contain_the_text_of_each_document(stories: Path, tmp_path: Path) -> None:
    build(corpus_of(stories), tmp_path, vocab=ByteLevelBPE(vocab_size=300))
    vocab = Vocab.load(tmp_path / "corpus" / "vocab")
    shards = [
        shard
        for split in ("train", "validation", "test")
        for shard in TokenStore.open(tmp_path / "corpus", split).shards
    ]
    assert len(shards) > 4
    found = {shard.key(i): vocab.decode(shard.document(i)["ids"]) for shard in shards for i in range(len(shard))}
    assert found == {text_key(text): text for text in (story(number) for number in range(60))}


def test_sentences_of_a_document_are_marked_in_the_shards(stories: Path, tmp_path: Path) -> None:
    build(corpus_of(stories), tmp_path)
    (shard,) = TokenStore.open(tmp_path / "corpus", "train").shards
    assert shard.document(0)["sentence_starts"].sum() == 7  # "Story n." and six more
    assert shard.document(0)["sentence_starts"][0]


def test_a_document_keeps_the_name_of_its_file(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_jsonl([story(number) for number in range(9)], "input/a.jsonl").parent
    write_jsonl([story(number) for number in range(9, 20)], "input/below/b.jsonl")
    build(corpus_of(folder), tmp_path)
    assert TokenStore.open(tmp_path / "corpus", "train").shards[0].sources == ("a.jsonl", "below/b.jsonl")


class TestEqualBytes:
    @pytest.fixture
    def manifest(self, stories: Path, tmp_path: Path, many_parts: None) -> Manifest:
        return build(corpus_of(stories), tmp_path / "first", *HERE)

    def test_in_another_run(self, stories: Path, tmp_path: Path, manifest: Manifest) -> None:
        build(corpus_of(stories), tmp_path / "second", *HERE)
        assert content(tmp_path / "first" / "corpus") == content(tmp_path / "second" / "corpus")

    def test_with_the_input_in_another_order(
        self, write_jsonl: Callable[..., Path], tmp_path: Path, manifest: Manifest
    ) -> None:
        shuffled = write_jsonl([story(number) for number in range(59, -1, -1)], "other/stories.jsonl")
        build(corpus_of(shuffled), tmp_path / "second", *HERE)
        assert content(tmp_path / "first" / "corpus") == content(tmp_path / "second" / "corpus")

    @pytest.mark.parametrize("vocab", [SMALL, ByteLevelBPE(vocab_size=300)], ids=["nanotoken", "gigatoken"])
    def test_with_a_fast_encoder(
        self, stories: Path, tmp_path: Path, many_parts: None, monkeypatch: pytest.MonkeyPatch, vocab: TokenizerSpec
    ) -> None:
        build(corpus_of(stories), tmp_path / "first", *HERE, vocab=vocab)
        monkeypatch.setattr(encode_module, "_WORTH_A_TRIAL", 0)
        events = list[Mapping[str, Any]]()
        build(corpus_of(stories), tmp_path / "second", *HERE, vocab=vocab, report=events.append)
        assert encode_module._vocab.cache_info().currsize
        named = {event["stage"]: event["equal_for"] for event in events if "equal_for" in event}
        encoder = "nanotoken 0.1.0" if vocab == SMALL else "gigatoken 0.10.0"
        if find_obstacle(encoder.split()[0]):
            assert named == {}
        else:
            assert named.keys() == {f"trying the encoder {encoder}"}
            assert re.fullmatch(r"50,000 strings and 0\.\d MB", *named.values())
        assert content(tmp_path / "first" / "corpus") == content(tmp_path / "second" / "corpus")

    @pytest.mark.slow
    def test_with_the_sources_in_another_order(self, write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
        paths = [
            write_jsonl([story(number) for number in range(start, 40)], f"input/{start}.jsonl") for start in (0, 20)
        ]
        both = tuple(JsonlReader(path=str(path)) for path in paths)
        for name, order in (("first", both), ("second", both[::-1])):
            build(corpus_of(paths[0], sources=order), tmp_path / name)
        assert content(tmp_path / "first" / "corpus") == content(tmp_path / "second" / "corpus")

    def test_with_other_splits(
        self, stories: Path, tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sources, "SPLIT_BYTES", 1 << 20)
        assert build(corpus_of(stories), tmp_path / "second", *HERE).digest == manifest.digest
        assert len(list((tmp_path / "second" / "text").glob("text-*.arrow"))) == 1

    def test_with_the_text_in_another_format_and_the_same_file_name(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        texts = [story(number) for number in range(20)]
        (tmp_path / "a" / "file").write_text("".join(f"{text}\n" for text in texts))
        (tmp_path / "b" / "file").write_text("".join(f'<doc id="1">\n{text}\n</doc>\n' for text in texts))
        read = [
            TextReader(path=str(tmp_path / "a"), document_unit="line"),
            WikiExtractorReader(path=str(tmp_path / "b")),
        ]
        hashes = {read_text(corpus_of(tmp_path, sources=(one,)), tmp_path / one.kind).hash for one in read}
        assert len(hashes) == 1

    @pytest.mark.slow
    def test_with_one_and_two_processes(
        self, write_jsonl: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sources, "SPLIT_BYTES", 200_000)
        corpus = corpus_of(write_jsonl([story(number, sentences=300) for number in range(150)]), max_shard_mb=1)
        one, two = build(corpus, tmp_path / "one", *HERE), build(corpus, tmp_path / "two", *TWO)
        assert one.splits["train"]["shards"] > 1
        assert one.digest == two.digest
        assert content(tmp_path / "one" / "corpus") == content(tmp_path / "two" / "corpus")


class TestLedger:
    def test_it_balances_documents_bytes_and_tokens(self, write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
        texts = [story(number) for number in range(20)]
        path = write_jsonl([*texts, texts[0], "", "Too short.", f"\x00 {story(90)} \r\n", "x" * 3000])
        with path.open("ab") as file:
            file.write(b'{"text": "cut off\n{"body": "no text"}\n\n{"text": 3}\n' + b'{"text": "Bad \xff byte. ')
            file.write(story(91).encode() + b'"}')
        source = JsonlReader(path=str(path), encoding="utf-8")
        corpus = corpus_of(
            path, sources=(source,), clean=Clean(max_chars=2000, max_replacement_char_ratio=1, max_unreadable_ratio=1)
        )
        ledger = build(corpus, tmp_path).ledger
        kept = [*texts, story(90), "Bad \ufffd byte. " + story(91)]
        assert ledger.seen == Count(29, path.stat().st_size, ledger.kept.tokens)
        assert (ledger.kept.documents, ledger.kept.bytes) == (22, sum(len(text.encode()) for text in kept))
        assert {reason: count.documents for reason, count in ledger.dropped.items()} == {
            "bad_json": 1,
            "between_documents": 0,
            "duplicate": 1,
            "empty": 1,
            "no_field": 1,
            "not_a_string": 1,
            "too_long": 1,
            "too_short": 1,
            "trimmed": 0,
        }
        assert ledger.is_balanced()

    def test_its_tokens_equal_those_of_the_shards(self, stories: Path, tmp_path: Path) -> None:
        manifest = build(corpus_of(stories), tmp_path)
        tokens = sum(TokenStore.open(tmp_path / "corpus", split).num_tokens for split in manifest.splits)
        assert manifest.ledger.kept.tokens == tokens

    def test_repaired_utf8_is_counted_and_not_fatal(self, tmp_path: Path) -> None:
        (tmp_path / "input.txt").write_bytes(b"".join(story(number).encode() + b" \xff\xfe\n" for number in range(8)))
        source = TextReader(path=str(tmp_path / "input.txt"), document_unit="line", encoding="utf-8")
        manifest = build(corpus_of(tmp_path, sources=(source,), clean=Clean(max_replacement_char_ratio=1)), tmp_path)
        assert manifest.statistics["repaired"] == {"documents": 8, "sequences": 16}

    def test_a_document_without_tokens_is_dropped_with_a_reason(self, tmp_path: Path) -> None:
        control = "\u200e" * 40  # left-to-right marks: BERT's normalizer removes them all
        lines = [story(number) for number in range(8)] + [control]
        (tmp_path / "input.txt").write_text("".join(f"{line}\n" for line in lines))
        source = TextReader(path=str(tmp_path / "input.txt"), document_unit="line", encoding="utf-8")
        manifest = build(corpus_of(tmp_path, sources=(source,), clean=Clean(max_replacement_char_ratio=1)), tmp_path)
        assert manifest.ledger.dropped["no_tokens"] == Count(1, len(control.encode()))
        assert manifest.ledger.is_balanced()


class TestBadInput:
    """Each case is a one-line error (exit code 2) and leaves no files."""

    @pytest.fixture(params=["missing.txt", "missing/*.jsonl", "no text", "only empty"])
    def corpus(self, request: pytest.FixtureRequest, tmp_path: Path) -> Corpus:
        for folder in ("no text", "only empty"):
            (tmp_path / folder).mkdir()
        (tmp_path / "only empty" / "a.txt").write_bytes(b"\n\x00 \n")
        return corpus_of(tmp_path, sources=(TextReader(path=str(tmp_path / request.param), document_unit="line"),))

    def test_missing_or_unusable_text(self, corpus: Corpus, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"^[^\n]+; [^\n]+$"):
            read_text(corpus, tmp_path / "out")
        assert not (tmp_path / "out").exists() or not content(tmp_path / "out")

    def test_a_corpus_without_sources(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"^corpus books: no sources; [^\n]+$"):
            read_text(Corpus(name="books"), tmp_path)

    def test_a_vocabulary_that_does_not_fit_the_text(self, stories: Path, tmp_path: Path) -> None:
        (tmp_path / "greek.txt").write_text("".join(f"{'αβγδ εζηθ ικλμ ' * 5}{number}\n" for number in range(20)))
        greek = corpus_of(tmp_path, sources=(TextReader(path=str(tmp_path / "greek.txt"), document_unit="line"),))
        build(corpus_of(stories), tmp_path / "english")
        read_text(greek, tmp_path / "greek")
        with pytest.raises(BadInput, match=r"^[^\n]+does not fit[^\n]+% of the tokens are unknown[^\n]+$"):
            encode_corpus(tmp_path / "greek", tmp_path / "english" / "vocab", greek, tmp_path / "corpus")
        assert not content(tmp_path / "corpus")


class TestResume:
    @pytest.mark.usefixtures("many_parts")
    def test_finished_parts_are_not_made_again(self, stories: Path, tmp_path: Path) -> None:
        build(corpus_of(stories), tmp_path)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.arrow")}
        build(corpus_of(stories), tmp_path)
        assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.arrow")}

    @pytest.mark.usefixtures("many_parts")
    def test_only_a_damaged_shard_is_made_again(self, stories: Path, tmp_path: Path) -> None:
        build(corpus_of(stories), tmp_path)
        want = content(tmp_path / "corpus")
        damaged, *sound = sorted((tmp_path / "corpus").glob("*-of-*.arrow"))
        before = [path.stat().st_mtime_ns for path in sound]
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
        build(corpus_of(stories), tmp_path)
        assert content(tmp_path / "corpus") == want
        assert before == [path.stat().st_mtime_ns for path in sound]

    def test_other_text_replaces_all_old_files(
        self, write_jsonl: Callable[..., Path], stories: Path, tmp_path: Path, many_parts: None
    ) -> None:
        build(corpus_of(stories), tmp_path / "one")
        other = corpus_of(write_jsonl([story(number) for number in range(100, 120)], "other/o.jsonl"))
        build(other, tmp_path / "one")
        build(other, tmp_path / "two")
        assert content(tmp_path / "one") == content(tmp_path / "two")

    def test_another_vocabulary_replaces_the_shards(self, stories: Path, tmp_path: Path) -> None:
        first = build(corpus_of(stories), tmp_path)
        second = build(corpus_of(stories), tmp_path, vocab=replace(SMALL, vocab_size=60))
        assert first.vocab["hash"] != second.vocab["hash"]
        assert TokenStore.open(tmp_path / "corpus", "train").manifest == second


@pytest.mark.usefixtures("many_parts")
def test_progress_counts_all_splits_and_then_all_shards(stories: Path, tmp_path: Path) -> None:
    reported: list[dict[str, Any]] = []
    texts = read_text(corpus_of(stories), tmp_path / "text", report=reported.append)
    last = [event for event in reported if event["stage"] == "text"][-1]
    assert (last["done"], last["documents"]) == (len(texts.parts), 60)
    train_vocab(tmp_path / "text", SMALL, tmp_path / "vocab")
    manifest = encode_corpus(
        tmp_path / "text", tmp_path / "vocab", corpus_of(stories), tmp_path / "corpus", report=reported.append
    )
    last = [event for event in reported if event["stage"] == "corpus"][-1]
    assert last["done"] == last["total"] == len(manifest.shards)
    assert last["tokens"] == manifest.ledger.kept.tokens


@pytest.mark.slow
def test_another_version_of_numba_does_not_train_a_vocabulary_again(stories: Path, tmp_path: Path) -> None:
    read_text(corpus_of(stories), tmp_path / "text", HERE)
    train_vocab(tmp_path / "text", SMALL, tmp_path / "vocab")
    file = tmp_path / "vocab" / "made_from.json"
    made_from = json.loads(file.read_bytes())
    assert ("numba" in made_from) == (find_spec("numba") is not None)
    older = json.dumps(made_from | {"numba": "0.1"})
    file.write_text(older)
    train_vocab(tmp_path / "text", SMALL, tmp_path / "vocab")
    assert file.read_text() == older
    file.write_text(json.dumps(made_from | {"tokenizers": "0.1"}))
    train_vocab(tmp_path / "text", SMALL, tmp_path / "vocab")
    assert json.loads(file.read_bytes()) == made_from


@pytest.mark.usefixtures("many_parts")
def test_a_vocabulary_is_trained_only_on_training_documents(
    stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = read_text(corpus_of(stories), tmp_path / "text")
    held_out = {d.key for s in texts.shards if not s.name.startswith("train") for d in texts.documents(s.start, s.stop)}
    seen: list[str] = []

    def recorded(spec: TokenizerSpec, given: Iterable[str]) -> Vocab:
        seen.extend(given)
        return train(spec, seen)

    monkeypatch.setattr("pipeline.jobs.train", recorded)
    train_vocab(tmp_path / "text", SMALL, tmp_path / "vocab", sample_mb=1)
    assert len(seen) == 60 - len(held_out)
    assert not held_out & {text_key(text) for text in seen}


@pytest.mark.slow
@pytest.mark.usefixtures("many_parts")
def test_language_sampling_alpha_sets_the_fraction_of_a_rare_language(
    write_jsonl: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    english, french = [story(number) for number in range(100)], [story(number) for number in range(100, 104)]
    write_jsonl(english, "input/wiki.en.jsonl")
    write_jsonl(french, "input/wiki.fr.jsonl")
    for name, workers in (("one", HERE), ("two", TWO)):
        read_text(corpus_of(tmp_path / "input", validation_ratio=0, test_ratio=0), tmp_path / name, workers)
    seen: list[str] = []

    def recorded(spec: TokenizerSpec, given: Iterable[str]) -> Vocab:
        seen[:] = given
        return train(SMALL, seen)

    def sample_for(name: str, spec: TokenizerSpec) -> list[str]:
        train_vocab(tmp_path / name, spec, tmp_path / "vocab")
        return seen.copy()

    monkeypatch.setattr("pipeline.jobs.train", recorded)
    found = sample_for("one", SentencePieceBPE(language_sampling_alpha=0.5, languages=("en", "fr")))
    assert sorted(set(found)) == sorted({*english, *french})
    assert [found.count(text) for text in english] == [1] * 100
    # about 5, because the ratio 1/5 : 1 is the square root of 1/25 : 1
    times = (len("".join(english)) / len("".join(french))) ** 0.5
    assert {found.count(text) for text in french} <= {int(times), int(times) + 1}
    assert sample_for("two", SentencePieceBPE(language_sampling_alpha=0.5, languages=("en", "fr"))) == found
    for in_proportion in (SentencePieceBPE(language_sampling_alpha=0.5), SentencePieceBPE(languages=("en", "fr"))):
        assert sorted(sample_for("one", in_proportion)) == sorted([*english, *french])


def test_a_sample_of_languages_is_at_most_as_large_as_requested(
    write_jsonl: Callable[..., Path], tmp_path: Path
) -> None:
    write_jsonl([story(number) for number in range(80)], "input/fr/1.jsonl")
    rare = [story(number) for number in range(80, 100)]
    write_jsonl(rare, "input/en/1.jsonl")
    texts = read_text(corpus_of(tmp_path / "input", validation_ratio=0, test_ratio=0), tmp_path / "text", HERE)
    spec = SentencePieceBPE(language_sampling_alpha=0.5, languages=("en", "fr", "de"))
    found = list(_sample_of_languages(texts, 9_000, spec))
    size = {name: sum(len(text) for text in found if (text in rare) == (name == "en")) for name in ("en", "fr")}
    assert 8_000 < sum(size.values()) <= 9_000
    assert size["fr"] / size["en"] == pytest.approx(2, rel=0.15)  # the square root of 80 : 20


def test_the_manifest_contains_no_machine_paths(stories: Path, tmp_path: Path) -> None:
    build(corpus_of(stories), tmp_path)
    actual = (tmp_path / "corpus" / "manifest.json").read_text()
    assert str(tmp_path) not in actual
    assert json.loads(actual)["statistics"]["sentences"] == 60 * 7


@pytest.mark.parametrize("content", [b"", b"{}", b'{"splits": 3}', b"\xff"])
def test_a_damaged_text_directory_is_a_one_line_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "text.json").write_bytes(content)
    with pytest.raises(BadInput, match=r"^[^\n]+: damaged; [^\n]+$"):
        TextDirectory.load(tmp_path)


def test_text_in_several_batches_is_encoded_as_in_one(
    stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = build(corpus_of(stories), tmp_path / "one")
    monkeypatch.setattr(encode_module, "_AT_ONCE", 500)
    assert build(corpus_of(stories), tmp_path / "two").digest == one.digest


def test_a_damaged_seal_does_not_stop_the_next_job(stories: Path, tmp_path: Path) -> None:
    corpus = corpus_of(stories)
    texts = read_text(corpus, tmp_path / "text", HERE)
    (tmp_path / "text" / "text.json").unlink()
    (tmp_path / "text" / texts.parts[0]).with_suffix(".json").write_bytes(b'{"ledger": ')
    assert read_text(corpus, tmp_path / "text", HERE, report=lambda event: None).hash == texts.hash


def test_a_damaged_vocabulary_in_a_corpus_is_repaired_by_the_same_command(stories: Path, tmp_path: Path) -> None:
    manifest = build(corpus_of(stories), tmp_path)
    (tmp_path / "corpus" / "vocab" / "tokenizer.json").write_bytes(b"{}")
    encode_corpus(tmp_path / "text", tmp_path / "vocab", corpus_of(stories), tmp_path / "corpus", HERE)
    assert Vocab.load(tmp_path / "corpus" / "vocab").hash == manifest.vocab["hash"]


def test_a_file_name_that_is_not_utf8_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / os.fsdecode(b"caf\xe9.txt")).write_text(story(1))
    (tmp_path / "in" / "b.txt").write_text(story(2))
    texts = read_text(corpus_of(tmp_path, sources=(TextReader(path=str(tmp_path / "in")),)), tmp_path / "text", HERE)
    assert {document.source for document in texts.documents(0, 2)} == {"b.txt", "caf\\xe9.txt"}


def test_input_without_documents_is_named_with_its_content(tmp_path: Path) -> None:
    """The message used to be `no usable text in 0 documents (none)`."""
    request = web_record("request", b"GET / HTTP/1.1\r\n\r\n", "application/http; msgtype=request")
    for name in "abcd":
        (tmp_path / f"{name}.warc").write_bytes(request)
    corpus = Corpus(name="web", sources=(WarcReader(path=str(tmp_path)),))
    with pytest.raises(BadInput) as error:
        read_text(corpus, tmp_path / "text")
    assert str(error.value) == (
        f"no document in a.warc, b.warc, c.warc and 1 more, read as warc: only {4 * len(request):,} bytes "
        "between_documents; pass other text with --data, or set the format with KIND:PATH"
    )


def test_input_with_only_dropped_documents_is_named_with_the_reasons(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Short.\n\nToo.")
    corpus = Corpus(name="few", sources=(TextReader(path=str(tmp_path / "a.txt"), document_unit="paragraphs"),))
    with pytest.raises(BadInput, match=r"^no usable text in 2 documents \(2 too_short\) of a.txt, read as text; pass "):
        read_text(corpus, tmp_path / "text")
