"""The exported tokenizer encodes a text like the model's sequences, for every recipe."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from orchestration.config import Recipe
from orchestration.jobs.generation import _prompt
from preprocessing.rows import ExampleDataset
from preprocessing.schema import Ints, Row
from preprocessing.tokenization import Template, Vocab, of_folder, train
from tests.family import RECIPES, recipe
from tests.preprocessing.toy import ToyShard, ToyStore
from tests.training.parity import hf
from training.evaluation.generation import Prompt
from training.evaluation.tasks.held_out import pair_row, row
from training.formats.export import save_tokenizer

TEXT = ["the cat sat on the mat", "a dog ran to the park", "it was in the town that he met her", "they sat down"] * 30
SMALL = {"wordpiece": 60, "byte_level_bpe": 300, "unigram": 32, "sentencepiece_bpe": 50, "word_level": 40, "bytes": 300}


@cache
def vocabulary(kind: str, keys: tuple[tuple[str, object], ...]) -> Vocab:
    """A small vocabulary of this kind."""
    spec = next(one.data.tokenizer for one in map(recipe, RECIPES) if one.data.tokenizer.kind == kind)
    sentinels = 20 if dict(keys).get("sentinels") else 0
    made = {"vocab_size": SMALL[kind] + sentinels, "extra_ids": sentinels, "special_tokens": dict(keys).get("specials")}
    fields = type(spec).__dataclass_fields__
    return train(type(spec)(**{name: value for name, value in made.items() if name in fields and value}), TEXT)


def of(one: Recipe) -> Vocab:
    spec = one.data.tokenizer
    return vocabulary(spec.kind, (("sentinels", spec.extra_ids), ("specials", getattr(spec, "special_tokens", ""))))


def store(vocab: Vocab, num_sentences: int, num_documents: int = 40) -> ToyStore:
    """Documents of `num_sentences` sentences each. Each sentence is a unit, so that the second of two is a
    translation."""
    documents = vocab.encode_documents([TEXT[:num_sentences]] * num_documents)
    ids_T = np.concatenate([document.ids for document in documents])
    starts_T = np.concatenate([document.sentence_starts for document in documents])
    return ToyStore(
        (
            ToyShard(
                ids_T=ids_T.astype(np.uint16),
                offset_N1=np.append(0, np.cumsum([len(document.ids) for document in documents])),
                sentence_at_M=np.flatnonzero(starts_T),
                starts_T=np.concatenate([document.word_starts for document in documents]),
                units_T=starts_T,
                source_names=("toy.en-fr.en",) * num_documents,
            ),
        )
    )


def ends(ids: Ints, vocab: Vocab) -> tuple[list[int], list[int]]:
    """The special tokens at the beginning and at the end of a sequence; masks and sentinels count as text."""
    text = {vocab.mask, *range(vocab.size - vocab.sentinels, vocab.size)}
    is_text = [id in text or id not in vocab.special_ids for id in ids.tolist()]
    first, last = is_text.index(True), len(is_text) - is_text[::-1].index(True)
    return ids[:first].tolist(), ids[last:].tolist()


def kinds() -> list[str]:
    """A recipe of each kind of sequence and vocabulary."""
    found: dict[object, str] = {}
    for name in RECIPES:
        one = recipe(name)
        spec, segment = one.data.tokenizer, one.data.packing
        layout = getattr(spec, "special_tokens", ""), spec.extra_ids > 0, getattr(segment, "fill", ""), segment.frame
        found.setdefault((spec.kind, segment.kind, one.objective.kind, *layout), name)
    return sorted(found.values())


@pytest.mark.parametrize("name", RECIPES)
def test_exported_texts_begin_and_end_like_the_sequences_of_the_recipe(name: str) -> None:
    """A sequence here is whole: it starts at the beginning of a document, or is a whole source."""
    tiny = recipe(name, "tiny")
    vocab = of(tiny)
    segment = tiny.data.packing
    rows = ExampleDataset(store(vocab, 2 if segment.kind == "parallel" else 4), vocab, tiny.sampling, 64)  # type: ignore[arg-type]
    made = next(row for row in (rows.row(0, at) for at in range(rows.count(0))) if is_forward(row))
    before, behind = ends(made.get("source_input_ids", made["input_ids"]), vocab)
    read = tiny.sampling.adapt_tokenizer(vocab).around
    assert list(read.before) == before
    is_whole = (
        segment.kind in ("segment_pair", "stream_pair", "single_sentence")
        or "source_input_ids" in made
        or vocab.cls in before
    )
    if is_whole and not (segment.kind == "contiguous" and not behind):
        assert list(read.behind) == behind
    else:  # running text, which may be cut anywhere: each document or sentence ends with this token
        assert read.behind == (vocab.sep,)
    if segment.kind == "stream_pair":
        assert read.segment == made["token_type_ids"][-1] == 2


def is_forward(row: Row) -> bool:
    """Whether a sequence is read forward; XLNet reads half of its sequences backward."""
    return "positions" not in row or row["positions"][0] <= row["positions"][-1]


@pytest.mark.parametrize("name", kinds())
def test_the_exported_tokenizer_gives_the_ids_of_fine_tuning(name: str, tmp_path: Path) -> None:
    """Tasks on held-out documents use the same IDs. For a decoder, the exported tokenizer does not add the end
    token."""
    tiny = recipe(name, "tiny")
    vocab = tiny.sampling.adapt_tokenizer(of(tiny))
    save_tokenizer(vocab, tiny.model, tmp_path)
    theirs = hf().AutoTokenizer.from_pretrained(tmp_path)
    template, (first, second) = Template(vocab), TEXT[:2]
    plain = [vocab.encode(text) for text in (first, second)]
    ids, tuned = theirs(first)["input_ids"], template.row(first).ids.tolist()
    end = [vocab.sep] if ids == plain[0] else []  # it adds no tokens around a text
    assert [*ids, *end] == tuned == row(vocab, np.array(plain[0]))["input_ids"].tolist()
    pair, ours = theirs(first, second), template.row(first, second)
    if not end:
        assert pair["input_ids"] == ours.ids.tolist()
        if "token_type_ids" in pair:
            assert pair["token_type_ids"] == ours.segments.tolist()
    if recipe(name).data.packing.segments == 2 and getattr(recipe(name).data.packing, "num_separators", 1) == 1:
        made = pair_row(vocab, *(np.array(part) for part in plain), 64)
        assert (made["input_ids"].tolist(), made["token_type_ids"].tolist()) == (
            ours.ids.tolist(),
            ours.segments.tolist(),
        )
    assert of_folder(tmp_path).around == vocab.around
    assert of_folder(tmp_path).special_ids == vocab.special_ids


def test_t5_has_no_cls_and_keeps_its_sentinels_when_decoding(tmp_path: Path) -> None:
    tiny = recipe("t5_base", "tiny")
    vocab = tiny.sampling.adapt_tokenizer(of(tiny))
    save_tokenizer(vocab, tiny.model, tmp_path)
    theirs = hf().AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.cls_token is None
    ids = theirs("the cat sat <extra_id_0> mat")["input_ids"]
    assert ids.count(vocab.size - 1) == 1
    assert "[CLS]" not in theirs.convert_ids_to_tokens(ids)
    assert "<extra_id_0>" in theirs.decode(ids, skip_special_tokens=True)
    assert "</s>" not in theirs.decode(ids, skip_special_tokens=True)
    again = of_folder(tmp_path)  # here, the text of a sentinel is ordinary text
    assert vocab.size - 1 not in again.encode("the <extra_id_0> mat")
    assert vocab.size - 1 not in Template(again).row("the <extra_id_0> mat").ids.tolist()
    assert again.cls is None
    assert of(tiny).cls in again.special_ids  # a model with this vocabulary never generates [CLS]


def test_a_prompt_of_a_decoder_begins_with_the_end_of_text_token(tmp_path: Path) -> None:
    """It is the end of the previous text, as in running text; `transformers` adds it on request."""
    for name in ("gpt2", "gpt1"):
        vocab = recipe(name, "tiny").sampling.adapt_tokenizer(of(recipe(name, "tiny")))
        save_tokenizer(vocab, recipe(name, "tiny").model, tmp_path / name)
        theirs = hf().AutoTokenizer.from_pretrained(tmp_path / name)
        prompt: Prompt = _prompt("the cat", vocab, None)
        assert theirs(theirs.bos_token + "the cat")["input_ids"] == prompt.ids.tolist()
