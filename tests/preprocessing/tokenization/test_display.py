"""Tokens are shown as text without vocabulary marks; each character, space and line break is in its place."""

import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from preprocessing.tokenization import (
    ByteLevelBPE,
    SentencePieceBPE,
    SingleBytes,
    TokenizerSpec,
    Unigram,
    Vocab,
    WordLevel,
    WordPiece,
    display_piece,
    display_text,
    display_tokens,
    legend,
    of_folder,
    token_texts,
    train,
)

TEXT = "The house of the king stood by the river. A na\u00efve caf\u00e9 \u2014 unhappily ended."
TEXTS = [f"{TEXT}\n\t{TEXT}"] * 9 + [
    *(f"Number {number} stood by the house of king {number * 7}." for number in range(50))
]
EXACT: list[TokenizerSpec] = [  # every space of the text is part of a token
    ByteLevelBPE(vocab_size=400),
    ByteLevelBPE(vocab_size=400, special_tokens="roberta"),
    SingleBytes(),
]
FOLDED: list[TokenizerSpec] = [Unigram(vocab_size=80), SentencePieceBPE(vocab_size=80)]
WORDS: list[TokenizerSpec] = [WordPiece(vocab_size=150, lowercase=False), WordLevel(vocab_size=150)]
MARKS = re.compile("##|</w>|[\u2581\u0120\u010a\u0109]|<0x")


@pytest.fixture(scope="module")
def vocabs() -> dict[TokenizerSpec, Vocab]:
    return {spec: train(spec, TEXTS) for spec in (*EXACT, *FOLDED, *WORDS)}


@pytest.fixture
def word_end_vocab(tmp_path: Path) -> Vocab:
    """A vocabulary like that of OpenAI's GPT, where a token marks the end of a word."""
    pieces = ["<unk>", "th", "the", "k", "i", "n", "g", "the</w>", "g</w>", "in", "ing</w>"]
    merges = [("in", "g</w>"), ("i", "n"), ("t", "h")]
    pieces += ["t", "h", "e", "in", "t</w>"]
    ids = {piece: id for id, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"unk_token": "<unk>"}')
    (tmp_path / "config.json").write_text(f'{{"model_type": "openai-gpt", "vocab_size": {len(ids)}}}')
    return of_folder(tmp_path)


@pytest.mark.parametrize("spec", EXACT, ids=str)
def test_byte_tokens_show_the_exact_text(vocabs: dict[TokenizerSpec, Vocab], spec: TokenizerSpec) -> None:
    vocab, text = vocabs[spec], f"{TEXT}\n\n  \u2014 na\u00efve\t"
    assert "".join(token_texts(vocab, vocab.encode(text))) == text


@pytest.mark.parametrize("spec", FOLDED, ids=str)
def test_sentencepiece_tokens_show_the_text_with_its_spaces(
    vocabs: dict[TokenizerSpec, Vocab], spec: TokenizerSpec
) -> None:
    assert "".join(token_texts(vocabs[spec], vocabs[spec].encode(TEXT))) == f" {TEXT}"
    assert display_text(vocabs[spec], vocabs[spec].encode(TEXT)) == TEXT


def test_wordpiece_tokens_are_joined_to_words(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    vocab = vocabs[WORDS[0]]
    ids = vocab.encode("unhoused the king stood.")
    assert any(vocab.piece(id).startswith("##") for id in ids)
    assert display_text(vocab, [*ids, vocab.specials["sep"]]) == "unhoused the king stood . [SEP]"
    assert display_text(vocabs[WORDS[1]], vocabs[WORDS[1]].encode("the  king")) == "the king"


def test_word_end_tokens_are_followed_by_a_space(word_end_vocab: Vocab) -> None:
    assert (
        display_text(word_end_vocab, [token_id(word_end_vocab, piece) for piece in ("the</w>", "k", "in", "g</w>")])
        == "the king "
    )


def token_id(vocab: Vocab, piece: str) -> int:
    return next(id for id in range(vocab.size) if vocab.piece(id) == piece)


@pytest.mark.parametrize("spec", [*EXACT, *FOLDED, *WORDS], ids=str)
def test_no_token_is_shown_with_a_vocabulary_mark(vocabs: dict[TokenizerSpec, Vocab], spec: TokenizerSpec) -> None:
    vocab = vocabs[spec]
    alone = [display_piece(vocab, id) for id in range(vocab.size)]
    assert not [text for text in alone if MARKS.search(text) or not text or " " in text or "\n" in text]
    assert len(set(alone)) > 0.9 * vocab.size  # a token inside a word and a token at a word start may look alike


def test_a_part_of_a_character_is_shown_as_bytes(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    vocab = vocabs[EXACT[2]]
    ids = vocab.encode("5 \u2014.")
    assert token_texts(vocab, ids) == ["5", " ", "", "", "\u2014", "."]
    assert token_texts(vocab, ids[:4])[2:] == ["\u27e8e2\u27e9", "\u27e880\u27e9"]
    assert token_texts(vocab, ids, alone=[3])[2:] == ["\u27e8e2\u27e9", "\u27e880\u27e9", "\u27e894\u27e9", "."]
    assert legend(display_tokens(vocab, ids[2:4])) == "\u27e8e2\u27e9 bytes of an incomplete character"


def test_a_sentencepiece_byte_token_is_a_part_of_its_character() -> None:
    assert [Unigram.utf8(piece) for piece in ("<0xE2>", "<0x82>", "\u2581a")] == [b"\xe2", b"\x82", b" a"]


def test_whitespace_that_is_hard_to_see_has_a_symbol(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    vocab = vocabs[EXACT[0]]
    shown = display_tokens(vocab, vocab.encode("a b\n\n    c\td\x1b"))
    assert (
        "".join(token.before + token.text for token in shown) == "a b\u23ce\u23ce\u00b7\u00b7\u00b7\u00b7c\u21e5d\u241b"
    )
    assert legend(shown) == "\u23ce line break; \u21e5 tab; \u00b7 a space that is easy to overlook"
    assert legend(display_tokens(vocab, vocab.encode("a b"))) == ""


@pytest.mark.parametrize("spec", [EXACT[1], FOLDED[1], WORDS[0]], ids=str)
def test_a_mask_has_the_space_of_its_label(vocabs: dict[TokenizerSpec, Vocab], spec: TokenizerSpec) -> None:
    vocab = vocabs[spec]
    begins = next(id for id in range(vocab.size) if vocab.utf8(id)[:1] == b" " and vocab.utf8(id)[1:].isalpha())
    inside = next(
        id
        for id in range(vocab.size)
        if id not in vocab.special_ids
        and (text := vocab.utf8(id).decode(errors="replace")).isalpha()
        and text.isascii()
    )
    first, word, part = vocab.encode("king")[0], vocab.utf8(begins)[1:].decode(), vocab.utf8(inside).decode()
    mask = vocab.specials["mask"]
    masked = display_tokens(vocab, [first, mask, mask], [-1, begins, inside])[1:]
    assert [(token.before, token.label) for token in masked] == [(" ", word), ("", part)]
    swapped = display_tokens(vocab, [first, begins, inside, begins], [-1, inside, begins, begins])[1:]
    assert [(token.before, token.text, token.label) for token in swapped] == [
        (" ", word, f"\u2026{part}"),
        ("", part, f"\u00b7{word}"),
        (" ", word, word),
    ]
    assert legend(swapped).endswith("\u2026 the label continues the preceding word")
