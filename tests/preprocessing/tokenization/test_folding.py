# ruff: noqa: RUF001 # some letters of the fifteen languages look like Latin letters
"""Case and accent folding of SentencePiece vocabularies, compared with the preprocessing of XLM's authors."""

import unicodedata
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from preprocessing.tokenization import SentencePieceBPE, Vocab, folding, train

TEXTS = {  # the fifteen languages of XNLI
    "ar": "كُلُّ إِنْسَانٍ يُولَدُ حُرًّا فِي الْكَرَامَةِ",
    "bg": "Всички хора се раждат свободни; Йордан и Ѝво",
    "de": "Alle Menschen sind frei, Übergröße und Ärger",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι, ΆΛΦΑ Ϊός",
    "en": "All human beings are born free; a café, naïve",
    "es": "Todos los seres humanos nacen libres; ¿Señor Núñez?",
    "fr": "Tous les êtres humains naissent libres, Ça et là, Noël",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों",
    "ru": "Все люди рождаются свободными, Ёлка и йод",
    "sw": "Watu wote wamezaliwa huru, hadhi na haki",
    "th": "มนุษย์ทั้งหลายเกิดมามีอิสระ น้ำ",
    "tr": "Bütün insanlar hür, İstanbul ve ışık, Çağrı",
    "ur": "تمام انسان آزاد اور حقوق و عزّت کے اعتبار سے",
    "vi": "Tất cả mọi người sinh ra đều được tự do, Đà Nẵng",
    "zh": "人人生而自由，在尊严和权利上一律平等。",
}


def reference_fold(text: str) -> str:
    """A reimplementation of tools/lowercase_and_remove_accent.py of facebookresearch/XLM."""
    parts = unicodedata.normalize("NFD", text.lower())
    return "".join(char for char in parts if unicodedata.category(char) != "Mn").lower()


def fold(text: str) -> str:
    return folding.plain(lowercase=True, strip_accents=True).normalize(text)


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    texts = [text for language, text in TEXTS.items() if language not in ("ar", "hi", "th", "ur", "zh")] * 9
    return train(SentencePieceBPE(vocab_size=90, lowercase=True, strip_accents=True), texts)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("language", TEXTS)
def test_text_is_folded_as_in_xlm(language: str, form: str) -> None:
    text = unicodedata.normalize(form, TEXTS[language])
    compatible = text.replace("，", ",")  # SentencePiece maps a full-width comma to a normal one
    assert fold(text) == reference_fold(compatible)


def test_hangul_stays_composed_and_compatibility_characters_are_decomposed() -> None:
    assert fold("한국어 ﬁne Ⅷ ＡＢＣ") == "한국어 fine viii abc"


def test_accents_can_be_removed_without_case() -> None:
    assert folding.plain(lowercase=False, strip_accents=True).normalize("Élan Vital") == "Elan Vital"


def test_ids_ignore_case_and_accents(vocab: Vocab) -> None:
    assert vocab.encode("Ça et là, Noël") == vocab.encode("ca et la, noel")
    assert "ê" not in "".join(vocab.piece(id) for id in range(vocab.size))


def test_tokenizer_json_folds_in_the_same_way(vocab: Vocab) -> None:
    tokenizer = Tokenizer.from_buffer(vocab.files["tokenizer.json"])
    for language in ("fr", "ru", "vi", "el"):
        assert tokenizer.encode(TEXTS[language], add_special_tokens=False).ids == vocab.encode(TEXTS[language])


def test_equal_texts_give_equal_bytes(vocab: Vocab) -> None:
    folding.build_normalizer.cache_clear()
    folding.plain.cache_clear()
    texts = [text for language, text in TEXTS.items() if language not in ("ar", "hi", "th", "ur", "zh")] * 9
    assert train(SentencePieceBPE(vocab_size=90, lowercase=True, strip_accents=True), texts).hash == vocab.hash


def test_a_file_with_accents_can_be_read_without_them(tmp_path: Path) -> None:
    plain = train(SentencePieceBPE(vocab_size=110), [TEXTS["fr"], TEXTS["en"]] * 9)
    plain.save(tmp_path)
    file = str(tmp_path / "spiece.model")
    bare = train(SentencePieceBPE(vocab_size=110, lowercase=True, strip_accents=True, path=file), [])
    assert bare.encode("Noël") == plain.encode("noel") != plain.encode("Noël")


def test_building_the_rules_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    folding.build_normalizer.cache_clear()
    folding.build_normalizer(lowercase=True, strip_accents=True)
    assert capfd.readouterr() == ("", "")
