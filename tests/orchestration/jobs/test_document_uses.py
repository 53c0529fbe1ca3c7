"""The uses of a document by a run, and the search for documents by key and text."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from orchestration.jobs.document_uses import DocumentUsesResult, find_uses
from orchestration.progress import ignore_progress
from pipeline.steps import TextDirectory
from pipeline.steps.documents import Document, write_documents
from preprocessing.dropped import DROPPED, DroppedDocument, write_dropped
from preprocessing.errors import BadInput
from preprocessing.manifest import Ledger
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from tests.training.corpora import mini_corpus, mini_run
from training.run import CHECKPOINTS, Run, write_run
from training.spikes import SPIKES

GONE, NEAR = "ab" * 16, "cd" * 16


def key_of(number: int) -> str:
    return (bytes(15) + bytes([number])).hex()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with a directory of its cleaned text: "Text NUMBER." of documents 0 to 59, and two dropped documents.

    The validation documents have the keys of documents 0 to 11.
    """
    out = tmp_path_factory.mktemp("out")
    corpus = mini_corpus(out / "corpora" / "mini-12345678")
    (corpus / "stage.json").write_text(json.dumps({"causes": {"text": "0a1b2c3d4e5f"}}))
    folder = out / "text" / "mini-0a1b2c3d"
    folder.mkdir(parents=True)
    texts = [
        Document(f"Text {number}. Some [words] & more.", "mini", bytes.fromhex(key_of(number))) for number in range(60)
    ]
    write_documents(folder / "text-0.arrow", texts[:30])
    write_documents(
        folder / "text-1.arrow", [*texts[30:], Document("A copy of Text 12.", "copies", bytes.fromhex(NEAR))]
    )
    TextDirectory(folder, "", "", ("text-0.arrow", "text-1.arrow"), (), Ledger(), {}, 0, {}).save()
    row = {"key": NEAR, "source": "copies", "reason": "near_duplicate", "kept_key": key_of(12), "kept_source": "mini"}
    with pa.OSFile(str(folder / "duplicates.arrow"), "wb") as file:
        table = pa.Table.from_pylist([row])
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    write_dropped(corpus / DROPPED, [DroppedDocument("too_short", GONE, "short.txt", 3, "abc")], ())
    return corpus


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    """A run of 20 steps that has trained 12, of which it skipped the third."""
    run = mini_run(corpus, tmp_path / "run", skip_steps=(3,))
    (tmp_path / "run" / CHECKPOINTS / "step-000000012").mkdir(parents=True)
    write_run(run)
    return run


def uses_of(run: Run, wanted: str, **more: object) -> DocumentUsesResult:
    return find_uses(run, wanted, ignore_progress, **more)  # type: ignore[arg-type]


def test_each_use_is_seen_skipped_or_later(run: Run) -> None:
    (found,) = uses_of(run, key_of(20)[:31] + "4").documents
    assert (found.document.key, found.document.split, found.num_trained) == (key_of(20), "train", 12)
    steps = [use.step for use in found.uses]
    assert steps == sorted(steps)
    assert {use.state for use in found.uses if use.step != 2} == {"seen", "later"}
    assert all((use.state == "seen") == (use.step < 12) for use in found.uses if use.step != 2)
    seen, later = (sum(use.state == state for use in found.uses) for state in ("seen", "later"))
    assert f"seen {seen} times in steps " in found.describe()
    assert (seen, later) == (2, 1)
    assert "will be seen once until step 19, next in step 19" in found.describe()


def test_steps_that_the_run_skips_are_not_seen(run: Run) -> None:
    spike = {"step": 6, "name": "loss", "value": 9.0, "limit": 2.0, "skipped": [5, 6]}
    (Path(run.folder) / SPIKES).write_text(f"{json.dumps(spike)}\n")
    found = [use for each in uses_of(run, "[words]", most=60).documents for use in each.uses]
    assert {use.step for use in found if use.state == "skipped"} == {2, 4, 5}
    assert not {2, 4, 5} & {use.step for use in found if use.state == "seen"}
    (Path(run.folder) / SPIKES).write_text("{}\n")
    with pytest.raises(BadInput, match=r"spikes.jsonl: is damaged \(skipped is missing\)"):
        uses_of(run, key_of(20))


def test_a_run_that_ended_early_never_sees_the_other_steps(run: Run) -> None:
    folder = Path(run.folder)
    (folder / "stage.json").write_text("{}")
    (folder / "result.json").write_text(json.dumps({"step": 12, "tokens": 1, "loss": 1.0, "evaluation": {}}))
    (found,) = uses_of(run, key_of(20)).documents
    assert {use.state for use in found.uses if use.step >= 12} == {"never"}
    assert "because the run ended after 12 steps" in found.describe()


def test_without_a_run_all_uses_are_later_and_steps_limit_them(run: Run) -> None:
    run = replace(run, folder=f"{run.folder}-other", skip_steps=())
    (every,) = uses_of(run, key_of(20)).documents
    (some,) = uses_of(run, key_of(20), steps=range(4, 9)).documents
    assert some.uses == tuple(use for use in every.uses if 4 <= use.step < 9)
    assert {use.state for use in every.uses} == {"later"}
    assert every.describe().startswith("not seen yet; will be seen ")
    for steps in (range(9, 9), range(3, 21)):
        with pytest.raises(BadInput, match=r"expected steps from 0 to 19 in ascending order"):
            uses_of(run, key_of(20), steps=steps)


def test_a_text_finds_the_documents_that_contain_it(run: Run) -> None:
    found = uses_of(run, "Text 20. Some [words] &")
    assert [each.document.key for each in found.documents] == [key_of(20)]
    assert found.documents[0].uses == uses_of(run, key_of(20)).documents[0].uses
    found = uses_of(run, "[words]", most=3)
    assert [each.document.key for each in found.documents] == [key_of(number) for number in range(3)]
    assert found.num_found == 60 + 12  # twelve are also held out
    for unknown in ("text 20.", "[Words]"):
        with pytest.raises(BadInput, match=r"^invalid DOCUMENT: got '[^']*', expected a text of a document of mini-"):
            uses_of(run, unknown)


def test_digits_are_a_key_before_they_are_a_text(run: Run) -> None:
    with pytest.raises(BadInput, match=r"the beginning of 60 keys, expected that of one; give more digits, e\.g\."):
        uses_of(run, "0000")
    with pytest.raises(BadInput, match=r"got '0000', expected a text of a document"):
        uses_of(run, "0000", is_text=True)
    with pytest.raises(BadInput, match=r"got 'beef', expected the beginning of a key or a text of a document"):
        uses_of(run, "beef")
    assert uses_of(run, "20").documents[0].document.key == key_of(20)  # too short for a key
    with pytest.raises(BadInput, match=r"^invalid DOCUMENT: got an empty value"):
        uses_of(run, " ")


def test_documents_that_are_not_trained_on_say_why(run: Run) -> None:
    train, validation = uses_of(run, key_of(7)).documents
    assert (train.document.split, validation.document.split) == ("train", "validation")
    assert (validation.uses, validation.describe()) == ((), "held out in the validation split, so no step trains on it")
    (near,) = uses_of(run, "A copy of").documents
    assert near.describe() == f"dropped (near duplicate), so no step reads it; {key_of(12)} of mini was kept instead"
    assert uses_of(run, NEAR[:6]).documents == (near,)
    (gone,) = uses_of(run, GONE.upper()).documents
    assert gone.describe() == "dropped (too short), so no step reads it"


def test_without_the_cleaned_text_the_tokens_are_searched(tmp_path: Path) -> None:
    run = mini_run(mini_corpus(tmp_path / "corpus", num_train=9), tmp_path / "run")
    one, _ = uses_of(run, key_of(8)).documents
    store = TokenStore.open(run.corpus, "train")
    words = Vocab.load(store.vocab_dir).decode(store.shards[0].tokens(8)[3:13].tolist())
    found = uses_of(run, words)
    assert one in found.documents
    assert found.note == "the cleaned text is not in its directory, so the text of the tokens was searched"
    for text, lost in ((f"{words} unheard", "unheard"), ("\u0301", "\u0301")):  # an accent alone decodes to ""
        with pytest.raises(
            BadInput, match=rf"this tokenizer has no token for '{lost}', and the text cannot be searched"
        ):
            uses_of(run, text)
