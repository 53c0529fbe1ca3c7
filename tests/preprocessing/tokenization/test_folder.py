"""A tokenizer directory of transformers gives the token IDs of its tokenizer; missing information is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor

from preprocessing.errors import BadInput
from preprocessing.tokenization import ByteLevelBPE, Template, Unigram, WordPiece, of_folder, train, with_inserts
from preprocessing.tokenization.sentencepiece import _charsmap
from tests.training.parity import hf

LEARNED = [
    "The quick brown fox jumps over the lazy dog in Zurich.",
    "Pack my box with five dozen liquor jugs; it isn't 12,000!",
] * 20
TEXTS = [
    "The quick fox isn't in Zürich, 12,000 naïve jugs!",
    "Ünknown ``quoted'' text: 日本 \u2026 end",
    "  two   spaces ",
]


def write_json(folder: Path, **files: Any) -> Path:
    """Write JSON files named by keyword, without their extension, to a directory."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def without(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).unlink()
    return folder


def assert_same_ids(folder: Path, theirs: Any, pairs: bool = True) -> None:
    """Check that token IDs of texts, of single sequences and of pairs equal those of a transformers tokenizer."""
    vocab = of_folder(folder)
    template = Template(vocab) if pairs else None
    for text in TEXTS:
        assert vocab.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
        if template is not None:
            assert template.row(text).ids.tolist() == theirs(text)["input_ids"]
            row, given = template.row(text, TEXTS[0]), theirs(text, TEXTS[0], return_token_type_ids=True)
            assert row.ids.tolist() == given["input_ids"]


def tokens_and_charsmap(folder: Path) -> tuple[list[tuple[str, float]], bytes]:
    """Return the tokens with their scores, and the normalization table, from spiece.model in a directory."""
    content = (folder / "spiece.model").read_bytes()
    model = SentencePieceProcessor(model_proto=content)
    return [(model.id_to_piece(id), model.get_score(id)) for id in range(model.get_piece_size())], _charsmap(content)


def save_spiece(folder: Path, **settings: Any) -> Path:
    train(Unigram(vocab_size=52), LEARNED).save(folder)
    without(folder, "specials.json", "tokenizer.json")
    return write_json(folder, **settings)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt"])
def test_wordpiece_directories_give_the_ids_of_transformers(name: str, lowercase: bool, tmp_path: Path) -> None:
    vocab = train(WordPiece(vocab_size=150, lowercase=lowercase), LEARNED)
    vocab.save(tmp_path)
    theirs = hf().BertTokenizer(vocab=str(tmp_path / "vocab.txt"), do_lower_case=lowercase)
    theirs.save_pretrained(tmp_path / "theirs")
    if name == "vocab.txt":
        without(tmp_path / "theirs", "tokenizer.json")
        (tmp_path / "theirs" / "vocab.txt").write_bytes((tmp_path / "vocab.txt").read_bytes())
    assert_same_ids(tmp_path / "theirs", theirs)


def test_gpt2_directories_give_the_ids_of_transformers(tmp_path: Path) -> None:
    train(ByteLevelBPE(vocab_size=320), LEARNED).save(tmp_path)
    theirs = hf().GPT2Tokenizer(vocab=str(tmp_path / "vocab.json"), merges=str(tmp_path / "merges.txt"))
    theirs.save_pretrained(tmp_path / "theirs")
    assert_same_ids(tmp_path / "theirs", theirs, pairs=False)  # the tokenizer of transformers has no template
    assert_same_ids(without(tmp_path, "specials.json", "tokenizer.json"), theirs, pairs=False)


def test_roberta_directories_give_the_ids_of_transformers(tmp_path: Path) -> None:
    train(ByteLevelBPE(vocab_size=320, special_tokens="roberta"), LEARNED).save(tmp_path)
    theirs = hf().RobertaTokenizer(vocab=str(tmp_path / "vocab.json"), merges=str(tmp_path / "merges.txt"))
    theirs.save_pretrained(tmp_path / "theirs")
    assert_same_ids(tmp_path / "theirs", theirs)
    assert_same_ids(without(tmp_path, "specials.json", "tokenizer.json"), theirs)
    assert of_folder(tmp_path).mask == theirs.mask_token_id


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("lowercase", [True, False])
def test_albert_directories_give_the_ids_of_transformers(lowercase: bool, keeps: bool, tmp_path: Path) -> None:
    actual = {"do_lower_case": lowercase, "keep_accents": keeps}
    folder = save_spiece(tmp_path / "ours", config={"model_type": "albert"}, tokenizer_config=actual)
    pieces, table = tokens_and_charsmap(folder)
    theirs = hf().AlbertTokenizer(vocab=pieces, _spm_precompiled_charsmap=table, **actual)
    assert_same_ids(folder, theirs)
    theirs.save_pretrained(tmp_path / "theirs")
    assert_same_ids(tmp_path / "theirs", theirs)


def test_xlnet_directories_give_the_ids_of_transformers(tmp_path: Path) -> None:
    """The template is A <sep> B <sep> <cls>; the last token has its own segment."""
    actual = {"do_lower_case": False, "tokenizer_class": "XLNetTokenizer"}
    folder = save_spiece(tmp_path / "ours", tokenizer_config=actual)
    pieces, table = tokens_and_charsmap(folder)
    names = {"sep_token": "[SEP]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
    theirs = hf().XLNetTokenizer(vocab=pieces, unk_id=1, _spm_precompiled_charsmap=table, **names)
    assert_same_ids(folder, theirs)
    row = Template(of_folder(folder)).row("a fox", "a dog")
    assert row.segments.tolist() == theirs("a fox", "a dog", return_token_type_ids=True)["token_type_ids"]
    assert row.segments[-1] == 2


def test_t5_directories_have_the_configured_number_of_sentinels(tmp_path: Path) -> None:
    train(Unigram(vocab_size=62, extra_ids=10), LEARNED).save(tmp_path)
    without(tmp_path, "specials.json", "tokenizer.json")
    write_json(tmp_path, config={"model_type": "t5"}, tokenizer_config={"extra_ids": 10})
    vocab = of_folder(tmp_path)
    assert (vocab.size, vocab.sentinels, vocab.piece(vocab.size - 1)) == (62, 10, "<extra_id_0>")
    write_json(tmp_path, tokenizer_config={})
    with pytest.raises(BadInput, match=r'add \{"extra_ids": 100\}, or the actual number, to tokenizer_config\.json'):
        of_folder(tmp_path)


@pytest.mark.shared
def test_the_published_t5_tokenizer_gives_the_ids_of_transformers(shared: Path, tmp_path: Path) -> None:
    theirs = hf().T5Tokenizer.from_pretrained(shared / "tokenizers" / "t5")
    # this file keeps a blank at the end of a text, transformers 5 does not
    published = of_folder(shared / "tokenizers" / "t5")
    assert [published.encode(text) for text in TEXTS[:2]] == theirs(TEXTS[:2], add_special_tokens=False)["input_ids"]
    theirs.save_pretrained(tmp_path)
    assert_same_ids(tmp_path, theirs)
    assert of_folder(tmp_path).sentinels == 100


def test_files_saved_by_sesame_are_read_unchanged(tmp_path: Path) -> None:
    vocab = train(Unigram(vocab_size=52, lowercase=True), LEARNED)
    vocab.save(tmp_path)
    assert of_folder(tmp_path) == vocab


# Refused directories


def test_vocab_txt_without_its_case_setting_is_refused(tmp_path: Path) -> None:
    train(WordPiece(vocab_size=150), LEARNED).save(tmp_path)
    without(tmp_path, "specials.json", "tokenizer.json")
    with pytest.raises(BadInput, match=r"do_lower_case is missing, but vocab\.txt requires it; add"):
        of_folder(tmp_path)
    for key, value in (("tokenize_chinese_chars", False), ("strip_accents", False)):
        write_json(tmp_path, tokenizer_config={"do_lower_case": True, key: value})
        with pytest.raises(
            BadInput, match=f"invalid {key}: got False, expected .* with vocab.txt; save the tokenizer there with"
        ):
            of_folder(tmp_path)


def test_contradicting_files_are_refused(tmp_path: Path) -> None:
    train(WordPiece(vocab_size=150), LEARNED).save(tmp_path)
    write_json(without(tmp_path, "specials.json"), tokenizer_config={"do_lower_case": False})
    with pytest.raises(
        BadInput, match=r"invalid do_lower_case: got false, expected true as in tokenizer\.json; correct"
    ):
        of_folder(tmp_path)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "invalid model_type: got none, expected t5, albert or xlnet"),
        ({"config": {"model_type": "pegasus"}}, "invalid model_type: got pegasus, expected t5, albert or xlnet"),
        ({"config": {"model_type": "xlnet"}}, r'add \{"do_lower_case": true\} or false to tokenizer_config'),
    ],
)
def test_a_sentencepiece_model_with_missing_settings_is_refused(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=reason):
        of_folder(save_spiece(tmp_path, **settings))


def test_a_directory_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"no tokenizer found, expected tokenizer\.json, .*; save the tokenizer there with tokenizer"
    ):
        of_folder(tmp_path)
    with pytest.raises(BadInput, match="no tokenizer found"):
        of_folder(tmp_path / "nowhere")


def test_byte_bpe_with_a_prefix_space_is_refused(tmp_path: Path) -> None:
    train(ByteLevelBPE(vocab_size=320), LEARNED).save(tmp_path)
    write_json(without(tmp_path, "specials.json", "tokenizer.json"), tokenizer_config={"add_prefix_space": True})
    with pytest.raises(BadInput, match="invalid add_prefix_space: got True, expected false with"):
        of_folder(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_is_refused(name: str, tmp_path: Path) -> None:
    train(WordPiece(vocab_size=150), LEARNED).save(tmp_path)
    (without(tmp_path, "specials.json") / name).write_text("{")
    with pytest.raises(BadInput, match="not a valid tokenizer of this kind"):
        of_folder(tmp_path)


def gpt_1(folder: Path) -> Any:
    """Save and return a tokenizer of OpenAI's GPT with a few merges."""
    letters = sorted({char for text in LEARNED for char in text.lower() if not char.isspace()})
    merges = [("t", "h"), ("th", "e</w>"), ("f", "o"), ("fo", "x</w>")]
    pieces = ["<unk>", *letters, *(f"{char}</w>" for char in letters), *(a + b for a, b in merges)]
    theirs = hf().OpenAIGPTTokenizer(vocab={piece: id for id, piece in enumerate(pieces)}, merges=merges)
    theirs.save_pretrained(folder)
    return theirs


def test_openai_gpt_directories_give_the_ids_of_transformers(tmp_path: Path) -> None:
    """In OpenAI's GPT, a word starts after a token with a word-end mark; there is no end token for sequences."""
    assert_same_ids(tmp_path, gpt_1(tmp_path), pairs=False)
    vocab = of_folder(tmp_path)
    assert (vocab.kind, vocab.sep, vocab.unk) == ("ended_bpe", None, 0)
    (document,) = vocab.encode_documents([["The fox isn't.", " The"]])
    words = [vocab.piece(int(id)) for id in document.ids[document.word_starts]]
    assert words == ["the</w>", "fox</w>", "i", "'</w>", "t</w>", ".</w>", "the</w>"]
    with pytest.raises(BadInput, match="has no end token for the default template; use a grid with input_format: gpt1"):
        Template(vocab, 24)
    row = Template(with_inserts(vocab, vocab.size), 24).row("The fox")
    assert row.ids.tolist() == [vocab.size, *vocab.encode("The fox"), vocab.size + 2]


def test_word_end_tokens_without_tokenizer_json_are_refused(tmp_path: Path) -> None:
    gpt_1(tmp_path)
    about = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    (without(tmp_path, "tokenizer.json") / "vocab.json").write_text(json.dumps(about["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(BadInput, match=r"the suffix </w> \(OpenAI GPT, XLM\) requires a tokenizer\.json"):
        of_folder(tmp_path)
