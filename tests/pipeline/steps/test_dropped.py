"""The sample of the dropped documents: bounded, equal for equal text, and without personal data if it is masked."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import JsonlReader
from pipeline.readers import splits as sources
from pipeline.spec import Clean, Corpus, Dedup, UrlLists
from pipeline.steps import read_text
from pipeline.steps.clean import Cleaner
from preprocessing.dropped import (
    DROPPED,
    MOST_PER_REASON,
    SHOWN_CHARS,
    DroppedDocument,
    DroppedSample,
    read_dropped,
    write_dropped,
)
from preprocessing.tokenization import WordPiece
from tests.pipeline.conftest import story
from tests.pipeline.steps.test_dedup import HERE

CLEAN = Clean(min_chars=40, filters=("gopher_quality",))


def corpus_of(folder: Path, texts: list[str], keep: tuple[str, ...] = (), url_key: str = "", **changes: Any) -> Corpus:
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"text": text, "url": f"http://{number}.org"}) for number, text in enumerate(texts))
    (folder / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    source = JsonlReader(path=str(folder / "in.jsonl"), url_key=url_key, keep=keep)
    return Corpus(**{"name": "test", "sources": (source,), "clean": CLEAN, **changes})


def sample_of(folder: Path, texts: list[str], **changes: Any) -> list[DroppedDocument]:
    """Return the sample of a text job."""
    found = read_text(corpus_of(folder, texts, **changes), folder / "text", HERE)
    return read_dropped(found.folder / DROPPED)


def long_texts(count: int) -> list[str]:
    """Return texts that all filters keep."""
    return [f"{story(number, 20)} That is to be the end of it." for number in range(count)]


def test_each_reason_has_its_documents_with_the_beginnings_of_their_texts(tmp_path: Path) -> None:
    texts = [*long_texts(3), "Too short.", "word " * 300, long_texts(1)[0]]
    found = sample_of(tmp_path, texts)
    assert Counter(each.reason for each in found) == {"too_short": 1, "gopher_stop_words": 1, "duplicate": 1}
    by_reason = {each.reason: each for each in found}
    assert by_reason["too_short"].text == "Too short."
    assert by_reason["gopher_stop_words"].text == ("word " * 300)[:SHOWN_CHARS]
    assert by_reason["gopher_stop_words"].chars == 1500
    duplicate = by_reason["duplicate"]
    assert duplicate.kept_key == duplicate.key
    assert duplicate.kept_text == duplicate.text == texts[0][:SHOWN_CHARS]
    assert all(not each.kept_key for each in found if each.reason != "duplicate")


def test_it_has_the_fields_of_both_documents(tmp_path: Path) -> None:
    texts = [*long_texts(3), long_texts(1)[0], "Too short."]
    found = {each.reason: each for each in sample_of(tmp_path, texts, keep=("url",))}
    assert found["too_short"].metadata == {"url": "http://4.org"}
    pair = {found["duplicate"].metadata["url"], found["duplicate"].kept_metadata["url"]}
    assert pair == {"http://0.org", "http://3.org"}


def test_sources_may_keep_different_fields(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [*long_texts(3), "Too short."], keep=("url",))
    (tmp_path / "other.jsonl").write_text(json.dumps({"text": "Short too.", "id": 7}) + "\n")
    (tmp_path / "plain.jsonl").write_text(json.dumps({"text": "Also short."}) + "\n")
    others = (
        JsonlReader(path=str(tmp_path / "other.jsonl"), keep=("id",)),
        JsonlReader(path=str(tmp_path / "plain.jsonl")),
    )
    found = read_text(replace(corpus, sources=(*corpus.sources, *others)), tmp_path / "text", HERE)
    assert {each.text: dict(each.metadata) for each in read_dropped(found.folder / DROPPED)} == {
        "Too short.": {"id": None, "url": "http://3.org"},
        "Short too.": {"id": "7", "url": None},
        "Also short.": {},
    }


def test_long_values_of_fields_are_cut(tmp_path: Path) -> None:
    write_dropped(
        tmp_path / DROPPED,
        [DroppedDocument("empty", "0", "a", 0, "", metadata={"html": "x" * 10**6, "id": None})],
        ["html", "id"],
    )
    (found,) = read_dropped(tmp_path / DROPPED)
    assert found.metadata == {"html": "x" * SHOWN_CHARS, "id": None}
    assert (tmp_path / DROPPED).stat().st_size < 10_000


@pytest.mark.parametrize("keep", [(), ("url",)])
def test_documents_dropped_by_url_language_score_fineweb_or_an_own_filter_are_in_it(
    tmp_path: Path, keep: tuple[str, ...]
) -> None:
    (tmp_path / "domains.txt").write_text("1.org\n")
    (tmp_path / "mine.py").write_text("def reject(text):\n    return 'secret' in text and 'secret'\n")
    mixed = "Le chat and the dog und die Katze y el perro. Il gatto e la mucca."
    texts = [*long_texts(3), f"secret {long_texts(1)[0]}", "Home\nNews\nContact of this page\nImprint", mixed]
    clean = Clean(
        min_chars=10,
        whitespace="keep",
        filters=(str(tmp_path / "mine.py"), "fineweb_quality"),
        min_language_score=0.9,
        urls=UrlLists(domains=str(tmp_path / "domains.txt")),
    )
    corpus = corpus_of(tmp_path, texts, keep, clean=clean, url_key="url")
    found = read_text(corpus, tmp_path / "text", HERE)
    sample = {each.reason: each for each in read_dropped(found.folder / DROPPED)}
    assert {reason: each.text for reason, each in sample.items()} == {
        "url_domain": texts[1][:SHOWN_CHARS],
        "mine_secret": texts[3][:SHOWN_CHARS],
        "fineweb_line_ends": texts[4],
        "language_score": mixed,
    }
    assert {reason: found.ledger.dropped[reason].documents for reason in sample} == dict.fromkeys(sample, 1)
    assert sample["url_domain"].metadata == ({"url": "http://1.org"} if keep else {})


def test_it_is_bounded_and_has_the_smallest_keys(tmp_path: Path) -> None:
    texts = [*long_texts(3), *(f"Short {number}." for number in range(100))]
    found = [each for each in sample_of(tmp_path, texts) if each.reason == "too_short"]
    assert len(found) == MOST_PER_REASON
    assert [each.key for each in found] == sorted(each.key for each in found)
    assert len({each.text for each in found}) == MOST_PER_REASON


@pytest.mark.parametrize("size", [2_000, 1 << 20])
def test_it_depends_neither_on_the_order_nor_on_the_division_of_the_input(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*long_texts(30), *(f"Short {number}." for number in range(100)), *long_texts(25)]
    expected = sample_of(tmp_path / "a", texts)
    monkeypatch.setattr(sources, "SPLIT_BYTES", size)
    assert sample_of(tmp_path / "b", texts[::-1]) == expected
    equal = [(tmp_path / name / "text" / DROPPED).read_bytes() for name in "ab"]
    assert equal[0] == equal[1]


def test_personal_data_is_masked_as_in_kept_documents(tmp_path: Path) -> None:
    texts = [*long_texts(3), "me@mail.org", f"{'no word ' * 60}me@mail.org {'no word ' * 60}"]
    for mask, expected in ((("email",), "name@example.com"), ((), "me@mail.org")):
        folder = tmp_path / str(len(mask))
        found = sample_of(folder, texts, clean=replace(CLEAN, mask_pii=mask))
        dropped = [each for each in found if each.reason in ("too_short", "gopher_stop_words")]
        assert len(dropped) == 2
        assert all(expected in each.text for each in dropped)
        content = (folder / "text" / DROPPED).read_bytes()
        assert (b"me@mail.org" in content) == (not mask)


@pytest.mark.parametrize("length", range(SHOWN_CHARS - 20, SHOWN_CHARS + 2, 3))
def test_an_address_at_the_end_of_the_beginning_is_not_shown_in_part(length: int) -> None:
    text = f"{'a b ' * 200}"[:length] + " someone.with.a.long.name@mail.example.org " + "a b " * 4000
    shown = Cleaner(replace(CLEAN, mask_pii=("email",))).beginning(text)
    assert "someone" not in shown
    assert len(shown) == SHOWN_CHARS


def test_a_long_list_of_addresses_is_masked() -> None:
    text = " ".join(f"person{number}.name@{'sub.' * 12}host{number}.org" for number in range(3000))
    shown = Cleaner(replace(CLEAN, mask_pii=("email",))).beginning(text)
    assert "person" not in shown
    assert "name@example.com" in shown


def test_documents_without_tokens_are_in_the_sample_of_the_corpus(tmp_path: Path) -> None:
    marks = "\u200e" * 60
    clean = Clean(max_replacement_char_ratio=1)
    corpus = corpus_of(tmp_path, [*long_texts(10), marks, "Too short."], ("url",), clean=clean)
    read_text(corpus, tmp_path / "text", HERE)
    train_vocab(tmp_path / "text", WordPiece(vocab_size=200), tmp_path / "vocab", HERE)
    encode_corpus(tmp_path / "text", tmp_path / "vocab", corpus, tmp_path / "corpus", HERE)
    found = read_dropped(tmp_path / "corpus" / DROPPED)
    assert [each.reason for each in found] == ["no_tokens", "too_short"]
    assert (found[0].text, dict(found[0].metadata)) == (marks, {"url": "http://10.org"})


def test_a_resumed_job_makes_a_missing_sample_again(tmp_path: Path) -> None:
    texts = [*long_texts(3), "Too short."]
    expected = sample_of(tmp_path, texts)
    (part,) = (tmp_path / "text").glob("dropped-*.arrow")
    part.unlink()
    (tmp_path / "text" / "text.json").unlink()
    assert read_dropped(read_text(corpus_of(tmp_path, texts), tmp_path / "text", HERE).folder / DROPPED) == expected


def test_other_text_removes_the_files_of_the_sample(tmp_path: Path) -> None:
    sample_of(tmp_path, [*long_texts(3), "Too short."])
    assert sample_of(tmp_path, long_texts(5)) == []
    assert not list((tmp_path / "text").glob("dropped-*.arrow"))


def test_a_sample_keeps_the_smallest_places_in_any_order() -> None:
    documents = [
        DroppedDocument("a" if number % 2 else "b", f"{number % 50:032x}", f"s{number % 3}", 1, "x")
        for number in range(200)
    ]
    samples = []
    for order in (documents, documents[::-1]):
        sample = DroppedSample()
        sample.update(order)
        samples.append(list(sample))
    assert samples[0] == samples[1]
    assert Counter(each.reason for each in samples[0]) == {"a": 20, "b": 20}
    assert all(each.source == "s0" for each in samples[0])


def test_a_sample_without_documents_is_a_file_without_rows(tmp_path: Path) -> None:
    write_dropped(tmp_path / DROPPED, [], ())
    assert read_dropped(tmp_path / DROPPED) == []


def test_a_changed_byte_is_detected_or_harmless(tmp_path: Path) -> None:
    sample = [DroppedDocument("a", "00" * 16, "s", 3, "abc", metadata={"url": "http://a.org"})]
    write_dropped(tmp_path / DROPPED, sample, ["url"])
    content, num_detected = (tmp_path / DROPPED).read_bytes(), 0
    for at in range(0, len(content), 7):
        changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        (tmp_path / "changed.arrow").write_bytes(changed)
        try:
            assert read_dropped(tmp_path / "changed.arrow") == sample
        except OSError:
            num_detected += 1
    assert num_detected > 20


def test_a_missing_or_foreign_file_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"no table")
    for name in ("missing", "other"):
        with pytest.raises(OSError, match=name):
            read_dropped(tmp_path / name)


def test_repeats_of_one_text_are_sampled_once(tmp_path: Path) -> None:
    found = sample_of(tmp_path, [*long_texts(2), *long_texts(1) * 5], dedup=Dedup())
    assert [each.reason for each in found] == ["duplicate"]
