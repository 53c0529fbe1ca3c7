"""Deduplication: which documents are equal, and which of them stays."""

import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import TextReader
from pipeline.spec import Clean, Corpus, Decontaminate, Dedup
from pipeline.steps import TextDirectory, read_text
from preprocessing.errors import BadInput
from preprocessing.manifest import Count
from preprocessing.text import text_key
from preprocessing.text.minhash import jaccard
from preprocessing.tokenization import WordPiece
from tests.pipeline.conftest import WORDS, story

HERE = ("--direct_running_mode=in_memory",)


def corpus_of(folder: Path, texts: list[str], **changes: Any) -> Corpus:
    """Return a corpus of one file with one document per line."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "in.txt").exists():  # a changed file would be another input
        (folder / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    return Corpus(name="test", sources=(TextReader(path=str(folder / "in.txt"), document_unit="line"),), **changes)


def read(folder: Path, texts: list[str], **changes: Any) -> TextDirectory:
    return read_text(corpus_of(folder, texts, **changes), folder / "text", HERE)


def kept(texts: TextDirectory) -> set[str]:
    return {document.text for document in texts.documents(0, texts.ledger.kept.documents)}


def duplicate_report(texts: TextDirectory) -> list[dict[str, str]]:
    with pa.memory_map(str(texts.folder / "duplicates.arrow")) as file:
        return pa.ipc.open_file(file).read_all().to_pylist()


def long_story(number: int, length: int = 300) -> list[str]:
    """Return words in an order that is unique for each number."""
    return np.random.default_rng([11, number]).choice([*WORDS, *map(str, range(2000))], length).tolist()


def edit(words: list[str], number: int, share: float) -> str:
    """Replace a run of about this fraction of the words; a run keeps most n-grams, as real edits do."""
    rng, length = np.random.default_rng([12, number]), int(share * len(words))
    at = int(rng.integers(len(words) - length))
    return " ".join([*words[:at], *(f"new{i}" for i in range(length)), *words[at + length :]])


class TestExact:
    def test_a_dropped_document_is_reported_with_the_kept_one(self, tmp_path: Path) -> None:
        texts = read(tmp_path, [story(1), story(2), story(1)])
        key = text_key(story(1)).hex()
        assert duplicate_report(texts) == [
            {"key": key, "source": "in.txt", "reason": "duplicate", "kept_key": key, "kept_source": "in.txt"}
        ]
        assert texts.ledger.dropped["duplicate"] == Count(1, len(story(1)))

    def test_without_exact_all_documents_stay_and_nothing_is_reported(self, tmp_path: Path) -> None:
        texts = read(tmp_path, [story(1), story(2), story(1)], dedup=Dedup(exact=False))
        assert (texts.ledger.kept.documents, duplicate_report(texts)) == (3, [])


class TestMinhash:
    NEAR = Dedup(minhash=True)

    def test_the_near_duplicate_with_the_smallest_key_stays(self, tmp_path: Path) -> None:
        words = [long_story(number) for number in range(20)]
        originals = [" ".join(each) for each in words]
        copies = [edit(each, number, 0.02) for number, each in enumerate(words[:5])]
        assert min(jaccard(a, b, 5) for a, b in zip(copies, originals, strict=False)) > 0.9
        texts = read(tmp_path, [*originals, *copies], dedup=self.NEAR)
        wanted = {min(pair, key=text_key) for pair in zip(originals[:5], copies, strict=True)} | set(originals[5:])
        assert kept(texts) == wanted
        assert texts.ledger.dropped["near_duplicate"].documents == 5
        assert texts.ledger.is_balanced()

    def test_the_report_names_both_documents_of_a_pair(self, tmp_path: Path) -> None:
        words = long_story(1)
        pair = sorted([" ".join(words), edit(words, 1, 0.02)], key=text_key)
        (reported,) = duplicate_report(read(tmp_path, [*pair, story(3)], dedup=self.NEAR))
        assert (reported["reason"], reported["kept_key"], reported["key"]) == (
            "near_duplicate",
            text_key(pair[0]).hex(),
            text_key(pair[1]).hex(),
        )

    def test_a_chain_of_near_duplicates_is_one_cluster(self, tmp_path: Path) -> None:
        chain = [long_story(1)]
        for number in range(4):
            chain.append(edit(chain[-1], number, 0.03).split())
        assert len(kept(read(tmp_path, [" ".join(words) for words in chain], dedup=self.NEAR))) == 1

    def test_the_result_is_independent_of_the_input_order(self, tmp_path: Path) -> None:
        words = [long_story(number) for number in range(12)]
        texts = [" ".join(each) for each in words] + [edit(each, n, 0.02) for n, each in enumerate(words[:6])]
        hashes = {
            read(tmp_path / name, order, dedup=self.NEAR).hash for name, order in (("a", texts), ("b", texts[::-1]))
        }
        assert len(hashes) == 1

    def test_a_resumed_job_keeps_its_signatures(self, tmp_path: Path) -> None:
        texts = [" ".join(long_story(number)) for number in range(5)]
        first = read(tmp_path, texts, dedup=self.NEAR)
        (signed,) = first.folder.glob("near-*.npy")
        before = signed.stat().st_mtime_ns
        (first.folder / "text.json").unlink()
        assert read(tmp_path, texts, dedup=self.NEAR).hash == first.hash
        assert signed.stat().st_mtime_ns == before

    @pytest.mark.slow
    def test_planted_near_duplicates_are_found_and_no_others(self, tmp_path: Path) -> None:
        words = [long_story(number) for number in range(4000)]
        originals = [" ".join(each) for each in words]
        planted = range(200)
        copies = [edit(words[number], number, 0.10 * (number + 1) / 200) for number in planted]
        similar = {number for number in planted if jaccard(originals[number], copies[number], 5) >= 0.8}
        texts = read(tmp_path, [*originals, *copies], dedup=self.NEAR)
        left = kept(texts)
        found = {number for number in planted if not {originals[number], copies[number]} <= left}
        assert len(similar & found) >= 0.95 * len(similar)
        assert texts.ledger.dropped["near_duplicate"].documents == len(found)  # no other document is dropped


class TestReferenceCorpora:
    def test_documents_of_a_finished_corpus_are_dropped(self, tmp_path: Path) -> None:
        old = corpus_of(tmp_path / "old", [story(number) for number in range(20)])
        read_text(old, tmp_path / "old" / "text", HERE)
        train_vocab(tmp_path / "old" / "text", WordPiece(vocab_size=200), tmp_path / "vocab", HERE)
        encode_corpus(tmp_path / "old" / "text", tmp_path / "vocab", old, tmp_path / "corpus", HERE)
        fresh = [story(number) for number in range(10, 30)]
        texts = read(tmp_path / "new", fresh, dedup=Dedup(reference_corpora=(str(tmp_path / "corpus"),)))
        assert kept(texts) == set(fresh[10:])
        assert texts.ledger.dropped["known"].documents == 10
        assert {reported["kept_source"] for reported in duplicate_report(texts)} == {""}

    def test_near_duplicates_of_a_reference_text_are_dropped(self, tmp_path: Path) -> None:
        words = [long_story(number) for number in range(10)]
        old = tmp_path / "old.txt"
        old.write_text("".join(" ".join(each) + "\n" for each in words))
        fresh = [edit(each, number, 0.02) for number, each in enumerate(words[:5])]
        fresh += [" ".join(words[5]), *(" ".join(long_story(number)) for number in range(20, 25))]
        texts = read(tmp_path / "new", fresh, dedup=Dedup(minhash=True, reference_corpora=(f"line:{old}",)))
        assert kept(texts) == set(fresh[6:])
        assert texts.ledger.dropped["near_known"].documents == 5
        assert texts.ledger.dropped["known"].documents == 1


class TestLines:
    @pytest.fixture
    def pages(self, tmp_path: Path) -> Path:
        """Five pages that share one line."""
        (tmp_path / "pages").mkdir()
        for number in range(5):
            text = f"{story(number)}\nSubscribe to our newsletter, it is free of charge.\n{story(number + 50)}\n"
            (tmp_path / "pages" / f"{number}.txt").write_text(text)
        return tmp_path / "pages"

    def test_a_line_occurs_once_in_the_whole_corpus(self, pages: Path, tmp_path: Path) -> None:
        corpus = Corpus(name="test", sources=(TextReader(path=str(pages)),), dedup=Dedup(line_min_chars=20))
        texts = read_text(corpus, tmp_path / "text", HERE)
        found = "\n".join(kept(texts))
        assert found.count("Subscribe") == 1
        assert all(story(number) in found for number in range(5))
        assert texts.ledger.dropped["repeated_line"] == Count(
            0, 4 * len("Subscribe to our newsletter, it is free of charge.\n")
        )
        assert texts.ledger.is_balanced()

    @pytest.mark.slow
    def test_shorter_lines_stay(self, pages: Path, tmp_path: Path) -> None:
        corpus = Corpus(name="test", sources=(TextReader(path=str(pages)),), dedup=Dedup(line_min_chars=60))
        assert "\n".join(kept(read_text(corpus, tmp_path / "text", HERE))).count("Subscribe") == 5

    def test_a_document_with_too_little_text_left_is_dropped(self, tmp_path: Path) -> None:
        texts = read(tmp_path, [f"{story(1)}", f"{story(1)} "], dedup=Dedup(line_min_chars=20, exact=False))
        assert texts.ledger.kept.documents == 1
        assert texts.ledger.dropped["repeated_line"].documents == 1
        assert texts.ledger.is_balanced()

    @pytest.mark.slow
    def test_a_file_named_twice_is_read_once(self, pages: Path, tmp_path: Path) -> None:
        corpus = Corpus(name="test", sources=(TextReader(path=str(pages)),) * 2, dedup=Dedup(line_min_chars=20))
        texts = read_text(corpus, tmp_path / "text", HERE)
        once = read_text(replace(corpus, sources=corpus.sources[:1]), tmp_path / "once", HERE)
        assert kept(texts) == kept(once)
        assert texts.ledger.dropped["duplicate"].documents == 5

    @pytest.mark.slow
    def test_near_duplicates_are_dropped_before_repeated_lines(self, tmp_path: Path) -> None:
        paragraphs = [" ".join(long_story(number, 60)) for number in range(10)]
        (tmp_path / "pages").mkdir()
        (tmp_path / "pages" / "a.txt").write_text("\n".join(paragraphs))
        (tmp_path / "pages" / "b.txt").write_text("\n".join([*paragraphs, "A line that the other one has not got."]))
        corpus = Corpus(
            name="test",
            sources=(TextReader(path=str(tmp_path / "pages")),),
            dedup=Dedup(minhash=True, line_min_chars=20),
        )
        texts = read_text(corpus, tmp_path / "text", HERE)
        assert texts.ledger.dropped["near_duplicate"].documents == 1
        assert all(paragraph in "".join(kept(texts)) for paragraph in paragraphs)
        assert {reported["reason"] for reported in duplicate_report(texts)} == {"near_duplicate"}
        assert texts.ledger.is_balanced()

    @pytest.mark.slow
    def test_a_known_document_is_dropped_as_known_although_its_lines_repeat(self, pages: Path, tmp_path: Path) -> None:
        sources = (TextReader(path=str(pages)),)
        against = Dedup(line_min_chars=20, reference_corpora=(f"text:{pages}/0.txt",))
        texts = read_text(Corpus(name="test", sources=sources, dedup=against), tmp_path / "text", HERE)
        assert texts.ledger.dropped["known"].documents == 1
        assert story(0) not in "".join(kept(texts))
        assert "\n".join(kept(texts)).count("Subscribe") == 1

    def test_the_kept_line_is_independent_of_the_splits(
        self, pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        corpus = Corpus(name="test", sources=(TextReader(path=str(pages)),), dedup=Dedup(line_min_chars=20))
        whole = read_text(corpus, tmp_path / "whole", HERE)
        monkeypatch.setattr("pipeline.readers.splits.SPLIT_BYTES", 300)
        pieces = read_text(corpus, tmp_path / "pieces", HERE)
        assert len(pieces.parts) > len(whole.parts)
        assert pieces.hash == whole.hash


class TestDecontaminate:
    def test_a_document_that_shares_an_ngram_with_an_evaluation_set_is_dropped(self, tmp_path: Path) -> None:
        question = "Which of the thirteen lamps in the hall of the old king was never lit again?"
        (tmp_path / "eval.txt").write_text(question + "\n")
        leaky = f"{story(1)} {question.upper()} {story(2)}"
        wanted = Decontaminate(paths=(f"line:{tmp_path / 'eval.txt'}",))
        texts = read(tmp_path / "new", [leaky, story(3), story(4)], decontaminate=wanted)
        assert kept(texts) == {story(3), story(4)}
        assert texts.ledger.dropped["contaminated"].documents == 1

    def test_evaluation_sets_are_cleaned_like_documents(self, tmp_path: Path) -> None:
        question = (
            "Le caf\u00e9 o\u00f9 les treize lampes du vieux roi ne furent jamais rallum\u00e9es apr\u00e8s minuit."
        )
        (tmp_path / "eval.txt").write_text(unicodedata.normalize("NFD", question) + "\n")
        wanted = Decontaminate(paths=(f"line:{tmp_path / 'eval.txt'}",))
        texts = read(tmp_path / "new", [f"{story(1)} {question}", story(3)], decontaminate=wanted)
        assert kept(texts) == {story(3)}

    def test_unreadable_parts_of_an_evaluation_set_are_reported(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "eval").mkdir()
        lines = [json.dumps({"text": story(9)}), '{"text": "torn', "[]"]
        (tmp_path / "eval" / "a.jsonl").write_text("\n".join(lines) + "\n")
        (tmp_path / "eval" / "b.pdf").write_bytes(b"%PDF-1.7")
        wanted = Decontaminate(paths=(str(tmp_path / "eval"),))
        assert kept(read(tmp_path / "new", [story(1), story(9)], decontaminate=wanted)) == {story(1)}
        left, unread = (line for line in caplog.messages if "files not read" in line or "decontaminate.paths" in line)
        assert left.startswith(f"{tmp_path / 'eval'}: files not read: b.pdf (PDF; ")
        assert unread.endswith("evaluation sets are ignored: 1 bad_json, 1 no_field")

    def test_too_short_evaluation_texts_are_reported_and_counted(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        lines = ["Who is she?", "", story(9), "Yes.", "\x00"]
        (tmp_path / "eval.txt").write_text("\n".join(lines) + "\n")
        wanted = Decontaminate(paths=(f"line:{tmp_path / 'eval.txt'}",))
        texts = read(tmp_path / "new", [story(1), story(9), f"Who is she? {story(2)}"], decontaminate=wanted)
        assert len(kept(texts)) == 2
        assert texts.evaluation_texts == {"texts": 5, "too_short": 4}
        assert [line for line in caplog.messages if "fewer than 8 words" in line] == [
            "decontaminate.paths: 4 of 5 evaluation texts have fewer than 8 words and are ignored; "
            "join each question and its answer to one text, or reduce decontaminate.ngram_size"
        ]
        assert TextDirectory.load(texts.folder).evaluation_texts == texts.evaluation_texts

    def test_a_table_without_a_column_text_is_refused_with_the_remedy_of_this_key(self, tmp_path: Path) -> None:
        """The message used to name --data and `text_key` of a source."""
        (tmp_path / "dev.tsv").write_text("index\tquestion\n0\tWho is she?\n1\tWho is he?\n")
        with pytest.raises(
            BadInput,
            match=r"^decontaminate\.paths: .*dev\.tsv: missing key 'text', expected one of 'index', 'question'; "
            r"add # and its name to the path, PATH#NAME$",
        ):
            read(tmp_path / "new", [story(1)], decontaminate=Decontaminate(paths=(str(tmp_path / "dev.tsv"),)))

    def test_evaluation_sets_without_an_ngram_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "eval.txt").write_text("Too short.\n")
        with pytest.raises(
            BadInput, match=r"no text of at least 8 words in line:.*eval\.txt \(1 are shorter\); join each"
        ):
            read(tmp_path / "new", [story(1)], decontaminate=Decontaminate(paths=(f"line:{tmp_path / 'eval.txt'}",)))


def test_another_max_unreadable_ratio_keeps_the_finished_parts(tmp_path: Path) -> None:
    """`max_unreadable_ratio` decides whether the job fails, and does not affect the content of parts."""
    strict, lenient = (Clean(max_unreadable_ratio=share) for share in (0.0, 0.5))
    first = read(tmp_path, [story(1), story(2)], clean=strict)
    part = first.folder / first.parts[0]
    before = part.stat().st_mtime_ns
    assert read(tmp_path, [story(1), story(2)], clean=lenient).parts == first.parts
    assert part.stat().st_mtime_ns == before
