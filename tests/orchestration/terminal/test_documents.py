"""Documents of a corpus on the terminal: one by its key, the dropped ones, the hosts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console, RenderableType

from orchestration.terminal.documents import (
    find_document,
    find_domains,
    find_dropped,
    render_document,
    render_domains,
    render_dropped,
)
from preprocessing.dropped import DROPPED, DroppedDocument, write_dropped
from preprocessing.errors import BadInput
from preprocessing.manifest import Count, Manifest
from preprocessing.shards import Shard, shard_name, write_shard
from tests.training.corpora import VOCAB_SIZE, mini_corpus

URL = "http://a.org/[bold]x"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus whose validation documents have URLs."""
    folder = mini_corpus(tmp_path / "corpus", num_train=5, num_validation=3)
    manifest = Manifest.load(folder)
    path = folder / shard_name("validation", 0, 1)
    shard = Shard(path)
    rows = [shard.document(row) for row in range(3)]
    columns = [[row[name].copy() for row in rows] for name in ("ids", "word_starts", "sentence_starts")]
    fields: list[Mapping[str, str | None]] = [{"url": URL, "id": str(row)} for row in range(2)] + [{"url": None}]
    keys = [bytes([255, 16 * row]) + bytes(14) for row in range(3)]
    del shard
    info = write_shard(path, *columns, ["web"] * 3, keys, vocab_size=VOCAB_SIZE, metadata=fields, fields=["id", "url"])
    domains = {"hosts": 1, "without_host": [1, 2, 3], "top": [["a.org", 2, 1000, 300]]}
    replace(manifest, shards=(manifest.shards[0], info), statistics={"domains": domains}).save(folder)
    return folder


def shown(what: RenderableType) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(what)
    return console.export_text()


class TestDocument:
    def test_it_is_found_by_the_first_digits_of_its_key(self, corpus: Path) -> None:
        found = find_document(corpus, "FF10")
        assert (found.split, found.row, found.source, found.key) == ("validation", 1, "web", "ff10" + "0" * 28)
        assert dict(found.metadata) == {"id": "1", "url": URL}
        assert np.all([word.startswith("w") for word in found.text.split()])

    def test_its_fields_are_shown_literally(self, corpus: Path) -> None:
        text = shown(render_document(find_document(corpus, "ff00")))
        assert f"url     {URL}\n" in text
        assert "source  web\n" in text

    def test_a_field_may_have_the_name_of_another_value(self, corpus: Path) -> None:
        """The field once replaced the key of the document."""
        found = replace(find_document(corpus, "ff00"), metadata={"key": "mine"})
        text = shown(render_document(found))
        assert f"{found.key}\n" in text
        assert "  mine\n" in text

    def test_without_fields_there_are_none(self, corpus: Path) -> None:
        assert dict(find_document(corpus, "0" * 31 + "3").metadata) == {}

    @pytest.mark.parametrize("key", ["ff", "xyz1", "f" * 33, ""])
    def test_an_invalid_key_is_refused(self, corpus: Path, key: str) -> None:
        with pytest.raises(BadInput, match=r"^invalid --document: got '[^']*', expected 4 to 32 hexadecimal digits"):
            find_document(corpus, key)

    def test_several_documents_are_refused_with_their_keys(self, corpus: Path) -> None:
        with pytest.raises(
            BadInput, match=r"^invalid --document: got '0000', expected the start of one key; [^\n]*0{9}"
        ):
            find_document(corpus, "0000")

    def test_an_unknown_key_is_refused(self, corpus: Path) -> None:
        with pytest.raises(BadInput, match=r"^invalid --document: got 'abcd', expected the key of a document of"):
            find_document(corpus, "abcd")


class TestDropped:
    SAMPLE = (
        DroppedDocument("near_duplicate", "01" * 16, "a", 4, "[b]", "02" * 16, "b", "kept text", {"url": URL}, {}),
        DroppedDocument("too_short", "03" * 16, "a", 900, "short"),
        DroppedDocument("known", "04" * 16, "a", 5, "known", "05" * 16),
    )

    def test_they_are_shown_by_reason_with_the_kept_document(self, corpus: Path) -> None:
        write_dropped(corpus / DROPPED, self.SAMPLE, ["url"])
        text = shown(render_dropped(find_dropped(corpus, "all"), {"too_short": Count(7)}))
        assert "too_short: 1 of 7 documents\na, key 030303030303, 900 characters\nshort ...\n" in text
        assert f"a, key 010101010101, url {URL}, 4 characters\n[b] ...\n" in text
        assert "kept instead: b, key 020202020202\nkept text\n" in text
        assert "kept instead: reference corpus, key 050505050505\n" in text

    def test_a_reason_selects_them(self, corpus: Path) -> None:
        write_dropped(corpus / DROPPED, self.SAMPLE, ["url"])
        assert [each.key for each in find_dropped(corpus, "too_short")] == ["03" * 16]

    def test_an_unknown_reason_is_refused_with_the_known_ones(self, corpus: Path) -> None:
        write_dropped(corpus / DROPPED, self.SAMPLE, ["url"])
        named = "all or one of known, near_duplicate, too_short"
        with pytest.raises(BadInput, match=rf"^invalid --dropped: got 'language', expected {named}; choose one"):
            find_dropped(corpus, "language")

    def test_a_reason_may_have_the_blanks_of_the_data_card(self, corpus: Path) -> None:
        write_dropped(corpus / DROPPED, self.SAMPLE, ["url"])
        assert [each.key for each in find_dropped(corpus, "near duplicate")] == ["01" * 16]

    @pytest.mark.parametrize(
        ("reason", "documents", "why"),
        [
            ("http_error", 2, "Sesame stores no text of the 2 documents with this reason"),
            ("trimmed", 0, "this reason counts bytes, but no documents"),
            ("repeated_substring", 0, "this reason counts bytes, but no documents"),
        ],
    )
    def test_a_reason_without_a_sample_is_explained(self, corpus: Path, reason: str, documents: int, why: str) -> None:
        write_dropped(corpus / DROPPED, self.SAMPLE, ["url"])
        manifest = Manifest.load(corpus)
        manifest.ledger.see(documents, bytes=50)
        manifest.ledger.drop(reason, documents, bytes=50)
        manifest.save(corpus)
        with pytest.raises(BadInput) as caught:
            find_dropped(corpus, reason)
        assert str(caught.value) == (
            f"invalid --dropped: got '{reason}', expected all or one of known, near_duplicate, too_short, because "
            f"{why}; see their number in the data card"
        )

    def test_a_corpus_that_dropped_nothing_says_so(self, corpus: Path) -> None:
        write_dropped(corpus / DROPPED, [], [])
        assert shown(render_dropped(find_dropped(corpus, "all"), {})) == "no document with text was dropped\n"
        with pytest.raises(BadInput, match=r"^invalid --dropped: got 'known', expected all: no document with text was"):
            find_dropped(corpus, "known")

    def test_a_corpus_without_the_file_is_refused(self, corpus: Path) -> None:
        with pytest.raises(BadInput, match=r"^[^\n]+dropped\.arrow: missing or damaged; delete [^\n]+manifest\.json"):
            find_dropped(corpus, "all")


class TestDomains:
    def test_they_are_a_table_with_documents_without_url(self, corpus: Path) -> None:
        lines = shown(render_domains(find_domains(corpus))).splitlines()
        assert lines[0].strip() == "1 host"
        assert [line.split() for line in lines[2:]] == [
            ["a.org", "2", "1,000", "300"],
            ["(no", "URL)", "1", "2", "3"],
        ]

    def test_without_urls_they_are_refused(self, corpus: Path) -> None:
        replace(Manifest.load(corpus), statistics={}).save(corpus)
        with pytest.raises(BadInput, match=r"^[^\n]+ invalid --domains: got documents without URLs, [^\n]+`keep:"):
            find_domains(corpus)
