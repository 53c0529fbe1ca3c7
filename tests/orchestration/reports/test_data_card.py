"""The data card: facts equal an independent count, and document text is never interpreted as markup."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from orchestration.config import Recipe, load
from orchestration.reports.data_card import card
from orchestration.reports.data_card import facts as card_facts
from orchestration.reports.data_card import page as card_page
from orchestration.reports.data_card.facts import DataCardFacts, MixedGroup
from pipeline.readers import GutenbergReader, JsonlReader
from pipeline.spec import Clean, Corpus, Decontaminate, Dedup
from preprocessing import tokenization
from preprocessing.dropped import DROPPED, DroppedDocument, write_dropped
from preprocessing.manifest import Count, Ledger, Manifest, ShardInfo
from preprocessing.shards import Shard, TokenStore, shard_name, write_shard
from preprocessing.text import REASONS, RULES, sentences
from preprocessing.tokenization import ShownToken
from tests.training.corpora import mini_corpus

HOSTILE = "<script>alert('x')</script> & ```` fences ``` | pipes **stars** $math$ {{braces}} end."


@pytest.fixture(scope="module")
def bert() -> Recipe:
    return load("bert_base", ["phases=[{seq_length: 64, global_batch_size: 8, steps: 4}]"], scale="tiny")


@pytest.fixture(scope="module")
def mini_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mini_corpus(tmp_path_factory.mktemp("mini") / "corpus", num_train=40, num_validation=8)


@pytest.fixture(scope="module")
def facts(mini_path: Path, bert: Recipe) -> DataCardFacts:
    return card.facts_of(mini_path, bert)


@pytest.fixture(scope="module")
def hostile_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose documents and sources contain much markup, with a vocabulary that reproduces any text exactly."""
    folder = tmp_path_factory.mktemp("hostile")
    texts = [f"{HOSTILE} This is document {number}. It ends." for number in range(12)]
    words = tokenization.train(tokenization.ByteLevelBPE(vocab_size=400, special_tokens="roberta"), texts)
    words.save(folder / "vocab")
    encoded = words.encode_documents([sentences(text) for text in texts])
    ids, sentence_starts, word_starts = ([document[column] for document in encoded] for column in range(3))
    shard = write_shard(
        folder / shard_name("train", 0, 1),
        ids,
        word_starts,
        sentence_starts,
        ["<b>|source_*1*|</b>\nsecond line"] * len(texts),
        [bytes(15) + bytes([number]) for number in range(len(texts))],
        vocab_size=words.size,
    )
    save_manifest(folder, words, shard)
    fields = {"url": "http://<b>.org/|x|"}
    dropped = [
        DroppedDocument("gopher_ratio", "00" * 16, "<b>|s|</b>", 600, HOSTILE, metadata=fields),
        DroppedDocument(
            *("near_duplicate", "01" * 16, "a.txt", len(HOSTILE), HOSTILE, "02" * 16, "b.txt"),
            kept_text=f"{HOSTILE} Kept.",
            metadata={"url": None},
            kept_metadata=fields,
        ),
    ]
    write_dropped(folder / DROPPED, dropped, ["url"])
    return folder


def save_manifest(folder: Path, words: tokenization.Vocab, shard: ShardInfo) -> None:
    about = {"kind": words.kind, "size": words.size, "hash": words.hash, "specials": words.specials}
    ledger = Ledger()
    ledger.see(20, bytes=2_000)
    ledger.keep(shard.rows, bytes=1_000, tokens=shard.tokens)
    for reason, documents, size in [("trimmed", 0, 100), ("near_duplicate", 2, 200), ("gopher_ratio", 1, 100)]:
        ledger.drop(reason, documents, bytes=size)
    ledger.drop("duplicate", 2, bytes=300)
    ledger.drop("not_text", 3, bytes=300)
    domains = {"hosts": 30, "without_host": [1, 2, 3], "top": [["<i>a.org</i>", 4, 50, 6], ["b.org", 1, 2, 3]]}
    statistics = {"domains": domains, "sentences": 1, "repaired": {"documents": 3}, "rejected": {"bad_<i>json</i>": 4}}
    Manifest("<hostile>", "", "", about, {}, (shard,), ledger, statistics).save(folder)


@pytest.fixture(scope="module")
def hostile_facts(hostile_path: Path) -> DataCardFacts:
    return card.facts_of(hostile_path, load("roberta_base", scale="tiny"))


@pytest.fixture(scope="module")
def page(hostile_facts: DataCardFacts) -> str:
    return card.html(hostile_facts, card.pictures(hostile_facts))


# Facts


def test_words_are_counted_by_number_of_tokens(mini_path: Path, facts: DataCardFacts) -> None:
    counted: Counter[int] = Counter()
    for split in ("train", "validation"):
        for shard in TokenStore.open(mini_path, split).shards:
            for number in range(len(shard)):
                starts = shard.document(number)["word_starts"].tolist()
                pieces = 0
                for is_start in [*starts[1:], True]:
                    pieces += 1
                    if is_start:
                        counted[pieces] += 1
                        pieces = 0
    assert facts.vocabulary.words_of == tuple(counted[pieces] for pieces in range(1, 7))
    assert counted[2] > 0
    assert facts.vocabulary.words == counted.total()


def test_tokens_are_counted_and_ranked(mini_path: Path, facts: DataCardFacts) -> None:
    shards = [shard for split in ("train", "validation") for shard in TokenStore.open(mini_path, split).shards]
    counted = Counter(np.concatenate([shard.ids_T for shard in shards]).tolist())
    words = tokenization.Vocab.load(mini_path / "vocab")
    (piece, count), *_ = facts.vocabulary.top
    assert count == max(counted.values())
    assert tokenization.display_piece(words, max(counted, key=lambda id: (counted[id], -id))) == piece
    assert facts.vocabulary.unused == words.size - len(words.special_ids) - len(counted)
    assert facts.vocabulary.zipf[-1] == (len(counted), min(counted.values()))
    assert dict(facts.vocabulary.covered)[10] == sum(count for _, count in counted.most_common(10))


def test_document_and_sentence_lengths_are_counted(mini_path: Path, facts: DataCardFacts) -> None:
    shards = [shard for split in ("train", "validation") for shard in TokenStore.open(mini_path, split).shards]
    lengths = sorted(length for shard in shards for length in shard.num_tokens_N.tolist())
    assert facts.documents.count == len(lengths) == 48
    assert facts.documents.quantiles["shortest"] == lengths[0]
    assert facts.documents.quantiles["median"] == lengths[23]
    assert facts.documents.quantiles["longest"] == lengths[-1]
    assert facts.sentences.count == sum(len(shard.sentence_at_M) for shard in shards)
    assert facts.sentences.mean == pytest.approx(sum(lengths) / facts.sentences.count)
    assert 7 <= facts.sentences.quantiles["shortest"] <= facts.sentences.quantiles["longest"] <= 12


@pytest.mark.parametrize("lengths", [[1], [1, 1, 2, 3], [7, 8, 9, 4096], [5, 1_000_003]])
def test_histogram_covers_every_length(lengths: list[int]) -> None:
    found = card_facts._lengths(Counter(lengths))
    assert sum(found.bins) == len(lengths)
    assert found.edges[0] <= lengths[0]
    assert lengths[-1] < found.edges[-1]
    assert len(found.edges) == len(found.bins) + 1


def test_facts_do_not_depend_on_the_chunk_size(
    mini_path: Path, bert: Recipe, facts: DataCardFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_facts, "_TOKENS_AT_ONCE", 150)
    shard = TokenStore.open(mini_path, "train").shards[0]
    ranges = list(card_facts._token_ranges(shard.offset_N1))
    assert len(ranges) > 10
    assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, shard.num_tokens)
    assert card.facts_of(mini_path, bert) == facts


def test_sampled_documents_are_spread_over_all_shards(mini_path: Path) -> None:
    shards = [Shard(mini_path / name) for name in ("train-00000-of-00001.arrow", "validation-00000-of-00001.arrow")]
    picked = [(shard.path.name.split("-")[0], i) for shard, i in card_facts._spread(shards, 6)]
    assert picked == [("train", 4), ("train", 12), ("train", 20), ("train", 28), ("train", 36), ("validation", 4)]
    assert len(list(card_facts._spread(shards, 1_000))) == 48


def test_drop_reasons_are_listed_in_processing_order(hostile_facts: DataCardFacts) -> None:
    assert list(hostile_facts.dropped) == ["not_text", "gopher_ratio", "trimmed", "duplicate", "near_duplicate"]


def test_every_reason_of_a_filter_is_listed_at_the_place_of_its_filter() -> None:
    order = card_facts._step_order(["gopher_repetition", "mine", "gopher_quality", "c4"])
    steps = [
        *("bad_json", "empty", "gopher_duplicate_lines", "gopher_top_2gram", "mine", "mine_x", "gopher_word_count"),
        *("c4_lorem_ipsum", "language_score", "trimmed", "duplicate"),
    ]
    shuffled = sorted(steps)
    assert sorted(shuffled, key=order) == steps
    assert set(REASONS) == set(RULES) == set(card_facts._FILTERS)


def test_the_card_has_no_markup_in_its_own_sentences(page: str, hostile_facts: DataCardFacts) -> None:
    assert "`" not in card._funnel(hostile_facts).paragraph
    assert "The reason trimmed counts the bytes" in " ".join(page.split())


def test_funnel_table_ends_with_the_kept_documents(hostile_facts: DataCardFacts) -> None:
    rows = card._funnel(hostile_facts).parts[0].rows
    left = [(row[3], row[6]) for row in rows]
    assert left[0] == ("20", "2,000")
    assert left[-2] == left[-1] == ("12", "1,000")


def test_funnel_figure_shows_the_drops_of_each_reason(hostile_facts: DataCardFacts) -> None:
    documents, sizes = card.pictures(hostile_facts)["funnel"].axes
    names = [label.get_text() for label in documents.get_yticklabels()]
    assert names == ["read", "not text", "gopher ratio", "trimmed", "duplicate", "near duplicate", "kept"]
    assert [text.get_text().strip() for text in documents.texts] == ["20", "-3", "-1", "0", "-2", "-2", "12"]
    assert [text.get_text().strip() for text in sizes.texts][-2:] == ["-200", "1,000"]


def test_dropped_documents_are_folded_by_reason(hostile_facts: DataCardFacts, page: str) -> None:
    text = card.markdown(hostile_facts)
    assert text.count("<details>") == text.count("</details>") == 2
    assert "<summary>near duplicate: 1 of 2 documents</summary>" in text
    kept = r"kept: b.txt, key 020202020202, url http://\<b\>.org/\|x\|"
    assert f"**a.txt, key 010101010101, {len(HOSTILE)} characters; {kept}**" in text
    assert f"{HOSTILE} Kept.\n" in text
    assert f"{HOSTILE} ...\n" in text  # the first document has 600 characters
    assert [tag for tag, _ in Tags(page).found].count("details") == 2


def test_a_summary_in_markdown_is_escaped() -> None:
    fold = card_page.Fold("<script> & more", (card_page.Quote("head", "text"),))
    text = card_page.markdown("t", [card_page.Section("S", "", (fold,))])
    assert "<summary>&lt;script&gt; &amp; more</summary>\n\n**head**\n\n```text\ntext\n```\n\n</details>" in text


def test_domains_are_listed_with_documents_without_url(hostile_facts: DataCardFacts, facts: DataCardFacts) -> None:
    text = card.markdown(hostile_facts)
    assert "The URLs of the documents have 30 hosts. The table lists the 2 with the most tokens." in text
    assert r"| \<i\>a.org\</i\> | 4 | 50 | 6 |" in text
    assert "| (no URL) | 1 | 2 | 3 |" in text
    assert facts.domains is None
    assert "## Domains" not in card.markdown(facts)


def test_a_corpus_without_a_sample_has_no_section_of_dropped_documents(facts: DataCardFacts) -> None:
    assert facts.dropped_samples == ()
    assert "dropped documents" not in [section.title for section in card._sections(facts)]


def test_settings_contain_no_local_directory(mini_path: Path, bert: Recipe, tmp_path: Path) -> None:
    spec = Corpus(
        name="mine",
        sources=(
            GutenbergReader(path="/home/me/a"),
            GutenbergReader(path="/home/me/b"),
            JsonlReader(path="/home/me/c", text_key="body"),
        ),
        clean=Clean(languages=("en", "de")),
        dedup=Dedup(reference_corpora=("/home/me/old",)),
        decontaminate=Decontaminate(paths=("/home/me/evals.jsonl",)),
        phrases="/home/me/phrases.txt",
    )
    made = card.facts_of(mini_path, bert, spec).settings
    assert made["sources"] == "2 x gutenberg, jsonl (text_key body)"
    assert made["dedup.reference_corpora.0"] == "old"
    assert made["phrases"] == "phrases.txt"
    assert made["clean.languages.1"] == "de"
    assert "/home" not in str(made)


# Training samples


def test_each_compatible_objective_is_shown_once(facts: DataCardFacts, hostile_facts: DataCardFacts) -> None:
    assert facts.examples[0].recipe == "bert_base_tiny"
    assert "bert_base" not in [each.recipe for each in facts.examples]
    names = [each.recipe for each in hostile_facts.examples]
    assert names[0] == "roberta_base_tiny"
    assert {"gpt2"} <= set(names)
    assert not {"bert_base", "roberta_base"} & set(names)


def test_a_corpus_without_a_recipe_names_no_recipe_for_its_training(mini_path: Path) -> None:
    known = card.facts_of(mini_path, None)
    assert known.recipe == ""
    assert "bert_base" in [each.recipe for each in known.examples]  # an objective that fits the vocabulary
    group = MixedGroup("web", 3.0, 1.0, 40, 800, trained=0, epochs=0.0, ledger=Ledger(), held_out={})
    page = card.markdown(replace(known, mixture=(group,), examples=()))
    assert "| group | documents | tokens | weight | requested fraction |\n" in page
    assert "| web | 40 | 800 | 3 | 100.00 % |\n" in page
    assert " reads " not in page
    assert "## Training samples" not in page


def test_sample_shows_labels_after_masked_tokens(facts: DataCardFacts, hostile_facts: DataCardFacts) -> None:
    masked = [token for token in facts.examples[0].tokens if token.label]
    assert 3 <= len(masked) <= 0.3 * len(facts.examples[0].tokens)
    assert any(token.text.strip() == "[MASK]" for token in masked)
    assert all(re.fullmatch(r"w\d+", token.label) for token in masked)
    (causal,) = (each for each in hostile_facts.examples if each.recipe == "gpt2")
    assert not any(token.label for token in causal.tokens)


def test_too_small_corpus_is_noted_instead_of_a_sample(tmp_path: Path, bert: Recipe) -> None:
    folder = mini_corpus(tmp_path / "corpus", num_train=1, num_validation=1)
    first = card.facts_of(folder, bert).examples[0]
    assert first.tokens == ()
    assert (
        "has no such sequence: train-00000-of-00001.arrow: packing.negatives random requires at least 2 documents"
        in first.note
    )
    assert str(tmp_path) not in first.note


# The page


class Tags(HTMLParser):
    """Collects all tags with their attributes and checks that closing tags match opening tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.actual = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.actual += data


def test_script_in_a_document_is_shown_as_text(page: str) -> None:
    tags = Tags(page)
    assert {tag for tag, _ in tags.found}.isdisjoint({"script", "link", "iframe", "object"})
    assert "<script>alert('x')</script>" in tags.actual
    assert "<b>|source_*1*|</b>" in tags.actual
    assert "bad <i>json</i>" in tags.actual


def test_page_needs_no_other_file(page: str) -> None:
    for tag, attributes in Tags(page).found:
        for name in ("src", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/png;base64,", "#")), (tag, value)
    assert "@import" not in page
    assert "url(" not in page
    assert page.count("data:image/png;base64,") == 4


def test_every_link_of_the_page_has_a_section(page: str) -> None:
    tags = Tags(page).found
    targets = [attributes["href"] for tag, attributes in tags if tag == "a"]
    assert targets == [f"#{attributes['id']}" for tag, attributes in tags if tag == "section"]
    assert len(set(targets)) == len(targets) == 14


def test_page_without_pictures_shows_text_histograms(facts: DataCardFacts) -> None:
    page = card.html(facts, {})
    assert "<img" not in page
    assert "####" in page


def test_markdown_fence_is_longer_than_backticks_in_the_document(hostile_facts: DataCardFacts) -> None:
    text = card.markdown(hostile_facts)
    assert f"`````text\n{HOSTILE}" in text  # one more than the longest run of backticks in the document
    assert r"\<b\>\|source\_\*1\*\|\</b\> second line" in text


def test_markdown_tables_have_equal_numbers_of_columns(hostile_facts: DataCardFacts) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", card.markdown(hostile_facts), re.MULTILINE)
    assert len(tables) >= 8
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1, table


def test_predicted_tokens_are_marked_in_markdown_and_html() -> None:
    tokens = (ShownToken(" ", "[CLS]", "", True), ShownToken(" ", "<a", "b&c"), ShownToken("", "d"))
    sections = [card_page.Section("S", "", (card_page.CardSample("head", "actual", tokens),))]
    assert "[CLS] {<a = b&c}d" in card_page.markdown("t", sections)
    assert "<i>[CLS]</i> <mark>&lt;a</mark><b>(b&amp;c)</b>d" in card_page.html("t", sections, {})


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "</pre></section><h1>", "'\"><img src=x onerror=alert(1)>", "{{ 7 * 7 }} {% raw %}"],
)
def test_hostile_text_is_escaped_in_every_part(text: str) -> None:
    tokens = (ShownToken("", text), ShownToken(" ", text, text), ShownToken("", text, "", True))
    parts = (
        card_page.CardTable((text, text), ((text, text),)),
        card_page.Picture("drawn", text),
        card_page.Picture("missing", "", (text,)),
        card_page.Quote(text, text),
        card_page.CardSample(text, text, tokens),
        card_page.Fold(text, (card_page.Quote(text, text),)),
    )
    tags = Tags(card_page.html(text, [card_page.Section(text, text, parts)], {"drawn": b"png"}))
    assert {tag for tag, _ in tags.found}.isdisjoint({"script"})
    assert [tag for tag, _ in tags.found].count("img") == [tag for tag, _ in tags.found].count("h1") == 1
    assert tags.actual.count(text) == 21
    assert [attributes["alt"] for tag, attributes in tags.found if tag == "img"] == [text]


@pytest.mark.parametrize("control", ["\u202e", "\u2066", "\x00", "\x1b", "\x9b"])
def test_control_character_is_shown_as_its_code(control: str) -> None:
    sections = [card_page.Section("S", "", (card_page.Quote(f"a{control}b", f"c{control}d"),))]
    for page in (card_page.html("t", sections, {}), card_page.markdown("t", sections)):
        assert control not in page
        assert f"c\\u{ord(control):04x}d" in page


def test_page_is_accessible(page: str) -> None:
    tags = Tags(page).found
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    named = [attributes["aria-labelledby"] for _, attributes in tags if "aria-labelledby" in attributes]
    assert len(ids) == len(set(ids))
    assert set(named) <= set(ids)
    assert [tag for tag, _ in tags if tag in ("h1", "h2")] == ["h1"] + ["h2"] * 14
    assert all(attributes.get("alt") for tag, attributes in tags if tag == "img")
    assert all(attributes["scope"] in ("col", "row") for tag, attributes in tags if tag == "th")
    assert all(attributes["tabindex"] == "0" for _, attributes in tags if attributes.get("class") == "scroll")
    assert "prefers-color-scheme: dark" in page


# Files


def test_moved_corpus_gives_the_same_bytes(mini_path: Path, bert: Recipe, tmp_path: Path) -> None:
    shutil.copytree(mini_path, tmp_path / "moved")
    first, second = (
        card.write(corpus, bert, tmp_path / name) for name, corpus in {"a": mini_path, "b": tmp_path / "moved"}.items()
    )
    assert [file.name for file in first] == ["data_card.md", "data_card.html"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert str(tmp_path) not in one.read_text()


@pytest.mark.slow
def test_other_processes_give_the_same_bytes(mini_path: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from orchestration.config import load\n"
        "from orchestration.reports.data_card import card as data_card\n"
        "data_card.write(Path(sys.argv[1]), load('bert_base', scale='tiny'), Path(sys.argv[2]))\n"
        "assert 'torch' not in sys.modules\n"
    )
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", program, str(mini_path), str(tmp_path / seed)],
            check=True,
            cwd=Path(card.__file__).parents[3],
            env=os.environ | {"PYTHONHASHSEED": seed},
        )
    for name in card.NAMES:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_funnel_without_drops_is_drawn(facts: DataCardFacts) -> None:
    empty = replace(facts, seen=Count(), kept=Count(), dropped={})
    assert set(card.pictures(empty)) == {"funnel", "document_lengths", "sentence_lengths", "zipf"}
    assert "0 documents with 0 tokens" in card.markdown(empty)


def test_rows_about_damage_and_personal_data_say_what_they_count(hostile_facts: DataCardFacts) -> None:
    """`repaired` does not count the repairs of ftfy, and `masked` does not count masked tokens."""
    statistics = {"repaired.documents": "3", "repaired.sequences": "5", "masked": "7"}
    text = card.markdown(replace(hostile_facts, statistics=statistics))
    for row in (
        "| documents with invalid bytes | 3 |",
        "| invalid byte sequences, replaced by U+FFFD | 5 |",
        "| personal data replaced by placeholders | 7 |",
    ):
        assert row in text
