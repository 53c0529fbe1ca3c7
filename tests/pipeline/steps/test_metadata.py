"""Fields that stay with documents: through all steps, into the shards, duplicates.arrow and the counts by host."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import JsonlReader, TextReader
from pipeline.readers import splits as sources
from pipeline.spec import Clean, Corpus, Dedup
from pipeline.steps import TextDirectory, read_text, repeats
from pipeline.steps.domains import count_hosts, sum_hosts, write_hosts
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from preprocessing.shards import TokenStore
from preprocessing.text import text_key
from preprocessing.tokenization import WordPiece
from tests.pipeline.conftest import story
from tests.pipeline.steps.test_dedup import HERE, duplicate_report, edit, long_story
from tests.pipeline.test_jobs import TWO, content

KEEP = ("id", "url")


def url_of(number: int) -> str:
    return f"https://www.host{number % 3}.org/{number}"


def corpus_of(folder: Path, values: Sequence[dict[str, Any]], **changes: Any) -> Corpus:
    """Return a corpus of one file of JSON Lines that keeps id and url."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "in.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))
    source = JsonlReader(path=str(folder / "in.jsonl"), keep=KEEP)
    return Corpus(**{"name": "test", "sources": (source,), "validation_ratio": 0.1, "test_ratio": 0.1, **changes})


def stories(count: int) -> list[dict[str, Any]]:
    return [{"text": story(number), "id": number, "url": url_of(number)} for number in range(count)]


def build(corpus: Corpus, out: Path) -> Manifest:
    read_text(corpus, out / "text", HERE)
    train_vocab(out / "text", WordPiece(vocab_size=200), out / "vocab", HERE)
    return encode_corpus(out / "text", out / "vocab", corpus, out / "corpus", HERE)


def stored(out: Path) -> dict[bytes, dict[str, str | None]]:
    """Return the metadata of all documents of a corpus by key."""
    manifest = Manifest.load(out / "corpus")
    shards = [shard for split in manifest.splits for shard in TokenStore.open(out / "corpus", split).shards]
    return {shard.key(row): dict(shard.metadata(row)) for shard in shards for row in range(len(shard))}


def metadata_by_text(texts: TextDirectory) -> dict[str, dict[str, str | None]]:
    return {each.text: dict(each.metadata) for each in texts.documents(0, texts.ledger.kept.documents)}


class TestInTheStore:
    def test_each_document_has_its_fields(self, tmp_path: Path) -> None:
        build(corpus_of(tmp_path, stories(30)), tmp_path)
        expected = {text_key(story(n)): {"id": str(n), "url": url_of(n)} for n in range(30)}
        assert stored(tmp_path) == expected

    def test_the_column_can_be_read_with_arrow(self, tmp_path: Path) -> None:
        build(corpus_of(tmp_path, stories(30)), tmp_path)
        with pa.memory_map(str(tmp_path / "corpus" / "train-00000-of-00001.arrow")) as file:
            table = pa.ipc.open_file(file).read_all()
        assert table.column_names == ["tokens", "source", "key", "metadata"]
        assert table.schema.field("metadata").type == pa.struct([("id", pa.string()), ("url", pa.string())])

    def test_without_the_key_shards_and_text_have_no_column(self, tmp_path: Path) -> None:
        corpus = corpus_of(tmp_path, stories(30))
        plain = replace(corpus, sources=(replace(corpus.sources[0], keep=()),))
        manifest = build(plain, tmp_path)
        shard = TokenStore.open(tmp_path / "corpus", "train").shards[0]
        assert (shard.fields, dict(shard.metadata(0)), "metadata" in shard.document(0)) == ((), {}, False)
        assert "domains" not in manifest.statistics
        (part,) = (tmp_path / "text").glob("text-*.arrow")
        with pa.memory_map(str(part)) as file:
            assert pa.ipc.open_file(file).schema.names == ["text", "source", "key", "spans", "check"]

    def test_sources_with_different_fields_share_the_column(self, tmp_path: Path) -> None:
        corpus = corpus_of(tmp_path, stories(10))
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "a.txt").write_text("".join(f"{story(number)}\n" for number in range(10, 20)))
        (tmp_path / "b.jsonl").write_text(json.dumps({"text": story(30), "title": "T"}) + "\n")
        more = TextReader(path=str(tmp_path / "more"), document_unit="line")
        titled = JsonlReader(path=str(tmp_path / "b.jsonl"), keep=("title",))
        build(replace(corpus, sources=(*corpus.sources, more, titled)), tmp_path)
        found = stored(tmp_path)
        assert found[text_key(story(3))] == {"id": "3", "title": None, "url": url_of(3)}
        assert found[text_key(story(12))] == {"id": None, "title": None, "url": None}
        assert found[text_key(story(30))] == {"id": None, "title": "T", "url": None}

    def test_another_value_changes_the_hash_of_the_text(self, tmp_path: Path) -> None:
        values = stories(10)
        first = read_text(corpus_of(tmp_path / "a", values), tmp_path / "a" / "text", HERE).hash
        values[4]["url"] = "http://other.org"
        assert read_text(corpus_of(tmp_path / "b", values), tmp_path / "b" / "text", HERE).hash != first

    @pytest.mark.parametrize("column", ["id", "url"])
    def test_a_damaged_value_is_detected(self, tmp_path: Path, column: str) -> None:
        texts = read_text(corpus_of(tmp_path, stories(10)), tmp_path / "text", HERE)
        (part,) = texts.folder.glob("text-*.arrow")
        content = part.read_bytes()
        before = url_of(7).encode() if column == "url" else b"0123456789"
        assert content.count(before) == 1
        part.write_bytes(content.replace(before, before[:-1] + b"x"))
        with pytest.raises(BadInput, match=r"^[^\n]+: missing or damaged; delete [^\n]+$"):
            list(texts.documents(0, 10))


class TestDuplicates:
    def test_both_documents_are_named(self, tmp_path: Path) -> None:
        values = [{"text": story(1), "id": number, "url": url_of(number)} for number in range(2)]
        found = read_text(corpus_of(tmp_path, [*values, *stories(5)[2:]]), tmp_path / "text", HERE)
        (report,) = duplicate_report(found)
        pair: list[Any] = [report["metadata"], report["kept_metadata"]]
        assert sorted(each["id"] for each in pair) == ["0", "1"]
        assert metadata_by_text(found)[story(1)] == report["kept_metadata"]

    def test_the_kept_one_does_not_depend_on_the_order(self, tmp_path: Path) -> None:
        values = [{"text": story(number % 4), "id": number, "url": url_of(number)} for number in range(40)]
        one = read_text(corpus_of(tmp_path / "a", values), tmp_path / "a" / "text", HERE)
        other = read_text(corpus_of(tmp_path / "b", values[::-1]), tmp_path / "b" / "text", HERE)
        assert metadata_by_text(one) == metadata_by_text(other)
        assert one.hash == other.hash

    def test_many_are_written_in_several_batches(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        values = [{"text": story(number % 5), "id": number, "url": url_of(number)} for number in range(40)]
        once = duplicate_report(read_text(corpus_of(tmp_path / "a", values), tmp_path / "a" / "text", HERE))
        monkeypatch.setattr(repeats, "_AT_ONCE", 10)
        found = duplicate_report(read_text(corpus_of(tmp_path / "b", values), tmp_path / "b" / "text", HERE))
        assert len(found) == 35
        assert found == once

    def test_near_duplicates_are_named(self, tmp_path: Path) -> None:
        words = long_story(1)
        texts = [" ".join(words), edit(words, 1, 0.02), story(3)]
        values = [{"text": text, "id": number, "url": url_of(number)} for number, text in enumerate(texts)]
        corpus = corpus_of(tmp_path, values, dedup=Dedup(minhash=True))
        (report,) = duplicate_report(read_text(corpus, tmp_path / "text", HERE))
        for which, key in (("metadata", "key"), ("kept_metadata", "kept_key")):
            number = next(at for at, text in enumerate(texts) if text_key(text).hex() == report[key])
            assert report[which] == {"id": str(number), "url": url_of(number)}  # type: ignore[comparison-overlap]

    def test_documents_without_new_lines_are_named_with_the_document_of_the_first_line(self, tmp_path: Path) -> None:
        line = "The same long line with many words, over and over."
        values = [
            {"text": f"{line}\n{story(1)}", "id": 1, "url": url_of(1)},
            {"text": f"{line}\nshort", "id": 2, "url": url_of(2)},
        ]
        corpus = corpus_of(tmp_path, values, dedup=Dedup(line_min_chars=30), validation_ratio=0, test_ratio=0)
        found = read_text(corpus, tmp_path / "text", HERE)
        if found.ledger.kept.documents == 1:
            (report,) = duplicate_report(found)
            assert report["reason"] == "repeated_line"
            assert (report["metadata"], report["kept_metadata"]) == (  # type: ignore[comparison-overlap]
                {"id": "2", "url": url_of(2)},
                {"id": "1", "url": url_of(1)},
            )
            assert report["kept_key"] == text_key(values[0]["text"]).hex()  # type: ignore[arg-type]

    def test_a_document_of_a_reference_corpus_has_no_fields(self, tmp_path: Path) -> None:
        (tmp_path / "known.txt").write_text(f"{story(1)}\n")
        dedup = Dedup(reference_corpora=(f"line:{tmp_path / 'known.txt'}",))
        corpus = corpus_of(tmp_path / "in", stories(5), dedup=dedup)
        (report,) = duplicate_report(read_text(corpus, tmp_path / "text", HERE))
        assert (report["reason"], report["kept_source"]) == ("known", "")
        assert report["metadata"] == {"id": "1", "url": url_of(1)}  # type: ignore[comparison-overlap]
        assert not any((report["kept_metadata"] or {}).values())  # type: ignore[attr-defined]

    def test_fields_stay_when_lines_and_substrings_are_removed(self, tmp_path: Path) -> None:
        line, passage = "This line is in all documents of the corpus.", " ".join(long_story(9, 30))
        values = [
            {"text": f"{line}\n{story(n)} {passage} {story(n + 50)}", "id": n, "url": url_of(n)} for n in range(8)
        ]
        dedup = Dedup(line_min_chars=20, substring_min_tokens=20)
        found = read_text(corpus_of(tmp_path, values, dedup=dedup), tmp_path / "text", HERE)
        for text, metadata in metadata_by_text(found).items():
            assert f"Story {metadata['id']}." in text
        assert len(found.fields) == 2


@pytest.mark.slow
def test_one_and_two_processes_write_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SPLIT_BYTES", 20_000)
    passage = " ".join(long_story(9, 30))
    values = [
        {"text": f"{story(n % 90)} {passage if n % 7 == 0 else ''} {story(n % 31)}", "id": n, "url": url_of(n)}
        for n in range(300)
    ]
    dedup = Dedup(minhash=True, line_min_chars=20, substring_min_tokens=20)
    corpus = corpus_of(tmp_path, values, dedup=dedup, clean=Clean(min_chars=60), max_shard_mb=1)
    files = []
    for name, beam_args in (("one", HERE), ("two", TWO)):
        out = tmp_path / name
        read_text(corpus, out / "text", beam_args)
        train_vocab(out / "text", WordPiece(vocab_size=200), out / "vocab", HERE)
        encode_corpus(out / "text", out / "vocab", corpus, out / "corpus", beam_args)
        files.append(content(out / "text") | content(out / "corpus"))
    assert len(list((tmp_path / "one" / "text").glob("substrings-*.arrow"))) > 1
    assert files[0] == files[1]


class TestDomains:
    def test_the_manifest_counts_documents_bytes_and_tokens_by_host(self, tmp_path: Path) -> None:
        values = stories(30)
        for value in values[:2]:
            value["url"] = None
        manifest = build(corpus_of(tmp_path, values), tmp_path)
        found = manifest.statistics["domains"]
        assert (found["hosts"], found["without_host"][0]) == (3, 2)
        by_host = {host: counts for host, *counts in found["top"]}
        assert by_host.keys() == {"host0.org", "host1.org", "host2.org"}
        for number in range(3):
            texts = [story(n) for n in range(2, 30) if n % 3 == number]
            assert by_host[f"host{number}.org"][:2] == [len(texts), sum(len(text.encode()) for text in texts)]
        tokens = sum(counts[2] for counts in by_host.values()) + found["without_host"][2]
        assert tokens == manifest.ledger.kept.tokens
        assert [counts[2] for counts in by_host.values()] == sorted((c[2] for c in by_host.values()), reverse=True)

    def test_they_do_not_depend_on_shards(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one = build(corpus_of(tmp_path / "a", stories(60)), tmp_path / "a").statistics["domains"]
        monkeypatch.setattr("pipeline.steps.plan._LEAST_BYTES", 2_000)
        monkeypatch.setattr(sources, "SPLIT_BYTES", 3_000)
        other = build(corpus_of(tmp_path / "b", stories(60)), tmp_path / "b")
        assert other.splits["train"]["shards"] > 1
        assert one == other.statistics["domains"]

    def test_only_the_hosts_with_the_most_tokens_are_listed(self, tmp_path: Path) -> None:
        counted = [(f"h{number:03}.org", (1, 10, number // 2)) for number in range(300)]
        halves = [json.dumps(counted[:150]).encode(), json.dumps(counted[150:]).encode()]
        groups = [sum_hosts((0, [half])) for half in halves]
        write_hosts(groups, str(tmp_path / "found.json"))
        found = json.loads((tmp_path / "found.json").read_text())
        assert (found["hosts"], len(found["top"])) == (300, 100)
        assert found["top"][:3] == [["h298.org", 1, 10, 149], ["h299.org", 1, 10, 149], ["h296.org", 1, 10, 148]]

    def test_documents_without_a_token_are_not_counted(self, tmp_path: Path) -> None:
        values = [*stories(20), {"text": "\u200e" * 40, "id": 50, "url": "http://empty.org"}]
        clean = Clean(max_replacement_char_ratio=1)
        manifest = build(corpus_of(tmp_path, values, clean=clean, validation_ratio=0, test_ratio=0), tmp_path)
        found = manifest.statistics["domains"]
        assert manifest.ledger.dropped["no_tokens"].documents == 1
        assert sum(counts[1] for counts in found["top"]) == 20
        assert sum(counts[2] for counts in found["top"]) == manifest.ledger.kept.bytes

    def test_the_counts_of_a_shard_are_grouped_by_host(self, tmp_path: Path) -> None:
        build(corpus_of(tmp_path, stories(30)), tmp_path)
        shard = TextDirectory.load(tmp_path / "text").shards[0]
        groups = list(count_hosts(shard, str(tmp_path / "text"), str(tmp_path / "corpus"), "url"))
        assert sum(sum_hosts((number, [block]))["hosts"] for number, block in groups) == 3
