"""A third-party tokenizer.json is used unchanged: token IDs equal those of `transformers` for any normalizer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from orchestration.config import check, load, load_cluster
from preprocessing.errors import BadInput
from preprocessing.tokenization import (
    ByteLevelBPE,
    SentencePieceBPE,
    TokenizerSpec,
    Unigram,
    WordPiece,
    vocab_from_file,
)

TEXT = [
    "The quick brown fox jumps over the lazy dog; it doesn't care, 3.5% of the time.",
    "Zażółć gęślą jaźń, a pchnąć w tę łódź jeża.",
    "Съешь ещё этих мягких французских булок, да выпей чаю.",
    "我能吞下玻璃而不伤身体。これはテストです。",
    "मैं काँच खा सकता हूँ। أنا قادر على أكل الزجاج",
    "Ça va? Été naïf\u2026 cafe\u0301 \uff21\uff22 \u00bd \U0001f600\U0001f468\u200d\U0001f469",
] * 3
OTHER = [*TEXT, " two  spaces ", "\n\na line\tand a tab", "x" * 150, "", "ΑΒΓ αβγ", "don't DON'T"]


def _trained(tokenizer: Tokenizer, trainer: Any) -> Tokenizer:
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def _wordpiece() -> Tokenizer:
    """A cased tokenizer that keeps accents and splits only at whitespace, unlike BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    return _trained(tokenizer, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False))


def _byte_bpe() -> Tokenizer:
    """Byte-level BPE that first splits numbers into digits, as newer decoder models do."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    digits = pre_tokenizers.Split(Regex(r"\d|[^\r\n\d]?\p{L}+|\s+|."), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    _trained(tokenizer, trainer).add_special_tokens(["<|endoftext|>", "<|fill|>", "<|pad|>"])
    return tokenizer


def _unigram() -> Tokenizer:
    """A tokenizer with the normalization of ALBERT, in steps that SentencePiece does not have."""
    tokenizer = Tokenizer(models.Unigram())
    lower = [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    tokenizer.normalizer = normalizers.Sequence(lower)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>", show_progress=False)
    return _trained(tokenizer, trainer)


def _metaspace_bpe() -> Tokenizer:
    """BPE over characters with byte fallback and no pre-tokenizer, as in Llama."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special[:3], show_progress=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")  # no token spans two words
    _trained(tokenizer, trainer)
    about = json.loads(tokenizer.to_str()) | {"pre_tokenizer": None}
    return Tokenizer.from_str(json.dumps(about))


Case = tuple[Callable[[], Tokenizer], type[Any], dict[str, Any], dict[str, str]]
CASES: dict[str, Case] = {
    "wordpiece": (
        _wordpiece,
        WordPiece,
        {"lowercase": False},
        {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"},
    ),
    "byte_level_bpe": (_byte_bpe, ByteLevelBPE, {}, {"pad": "<|pad|>", "sep": "<|endoftext|>", "mask": "<|fill|>"}),
    "unigram": (
        _unigram,
        Unigram,
        {"lowercase": True},
        {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    ),
    "sentencepiece_bpe": (_metaspace_bpe, SentencePieceBPE, {}, {"unk": "<unk>", "cls": "<s>", "sep": "</s>"}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Save one directory per kind; the configuration names the mask token if its name is unusual."""
    made = {}
    for kind, (make, _, _, roles) in CASES.items():
        made[kind] = tmp_path_factory.mktemp(kind)
        make().save(str(made[kind] / "tokenizer.json"))
        if kind == "byte_level_bpe":
            settings = {"mask_token": {"__type": "AddedToken", "content": roles["mask"]}, "eos_token": roles["sep"]}
            (made[kind] / "tokenizer_config.json").write_text(json.dumps(settings))
    return made


def spec_of(kind: str, file: Path, **more: Any) -> TokenizerSpec:
    _, member, settings, _ = CASES[kind]
    return member(**{"vocab_size": 1_000, "path": str(file), **settings, **more})


@pytest.mark.parametrize("kind", CASES)
def test_ids_equal_those_of_transformers(kind: str, folders: dict[str, Path]) -> None:
    from transformers import PreTrainedTokenizerFast  # slow to import

    vocab, reference = (
        vocab_from_file(spec_of(kind, folders[kind])),
        PreTrainedTokenizerFast.from_pretrained(folders[kind]),
    )
    assert [vocab.encode(text) for text in OTHER] == [
        reference.encode(text, add_special_tokens=False) for text in OTHER
    ]
    assert vocab.size == len(reference)


@pytest.mark.parametrize("kind", CASES)
def test_roles_follow_the_files_or_usual_names(kind: str, folders: dict[str, Path]) -> None:
    vocab = vocab_from_file(spec_of(kind, folders[kind] / "tokenizer.json"))
    assert {role: vocab.piece(id) for role, id in vocab.specials.items()} == CASES[kind][3]


@pytest.mark.parametrize("kind", CASES)
def test_a_special_token_in_a_text_is_plain_text(kind: str, folders: dict[str, Path]) -> None:
    vocab = vocab_from_file(spec_of(kind, folders[kind]))
    names = [vocab.piece(id) for id in vocab.special_ids if id != vocab.unk]
    found = {id for text in (*names, " ".join(names)) for id in vocab.encode(text)}
    assert not (found - {vocab.unk}) & set(vocab.special_ids)


@pytest.mark.parametrize("kind", CASES)
def test_words_start_as_in_the_text(kind: str, folders: dict[str, Path]) -> None:
    vocab = vocab_from_file(spec_of(kind, folders[kind]))
    (document,) = vocab.encode_documents([["The quick brown fox"]])
    starts = [vocab.piece(id) for id, begins in zip(document.ids, document.word_starts, strict=True) if begins]
    assert len(starts) == 4
    assert document.word_starts[0]


@pytest.mark.parametrize("kind", CASES)
def test_an_exported_tokenizer_is_read_back_unchanged(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    vocab = vocab_from_file(spec_of(kind, folders[kind]))
    vocab.save(tmp_path)
    if kind == "byte_level_bpe":
        (tmp_path / "special_tokens_map.json").write_text(json.dumps({"mask_token": "<|fill|>"}))
    assert vocab_from_file(spec_of(kind, tmp_path)) == vocab


def test_truncation_padding_and_dropout_are_ignored(folders: dict[str, Path], tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folders["byte_level_bpe"] / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    about = json.loads(tokenizer.to_str())
    about["model"] |= {"dropout": 0.5, "ignore_merges": False}
    (tmp_path / "tokenizer.json").write_text(json.dumps(about))
    vocab = vocab_from_file(spec_of("byte_level_bpe", tmp_path))
    ids = vocab.encode(TEXT[0])
    assert len(ids) > 4
    assert all(vocab.encode(TEXT[0]) == ids for _ in range(5))
    assert vocab.decode(ids) == TEXT[0]


def test_an_added_token_with_a_role_is_not_found_in_text(tmp_path: Path) -> None:
    tokenizer = _byte_bpe()
    tokenizer.add_tokens([AddedToken("<fim>", special=False)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"mask_token": "<fim>"}))
    vocab = vocab_from_file(spec_of("byte_level_bpe", tmp_path))
    assert vocab.mask is not None
    assert vocab.mask not in vocab.encode("a <fim> b")


def refusal(spec: TokenizerSpec) -> str:
    with pytest.raises(BadInput) as error:
        vocab_from_file(spec)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_named_but_missing_token_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folders["byte_level_bpe"] / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": "<gone>"}))
    assert "does not contain mask_token <gone>; add the token" in refusal(spec_of("byte_level_bpe", tmp_path))


def test_a_file_with_another_case_setting_than_the_recipe_is_refused(folders: dict[str, Path]) -> None:
    actual = refusal(spec_of("wordpiece", folders["wordpiece"], lowercase=True))
    assert "tokenizer.lowercase: invalid value true, expected false for" in actual
    assert actual.endswith("; set data.tokenizer.lowercase=false")
    actual = refusal(spec_of("unigram", folders["unigram"], lowercase=False))
    assert "tokenizer.lowercase: invalid value false, expected true for" in actual
    assert actual.endswith("; set data.tokenizer.lowercase=true")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"type": "BPE", "end_of_word_suffix": "</w>"}, "got BPE with suffix '</w>' at the end of words; use a"),
        ({"type": "WordPiece", "continuing_subword_prefix": "@@"}, "prefix '@@' inside words"),
        ({"type": "BPE"}, "got BPE with no mark of spaces"),
        ({"type": "Unigram"}, "got Unigram with no mark of spaces"),
        ({"type": "WordLevel"}, "got WordLevel with no mark of spaces"),
    ],
)
def test_a_scheme_without_known_word_starts_is_refused(tmp_path: Path, model: dict[str, str], message: str) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    assert message in refusal(WordPiece(path=str(tmp_path)))


def test_a_directory_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    for spec, names in {
        WordPiece: "tokenizer.json and no vocab.txt",
        Unigram: "tokenizer.json and no spiece.model and no tokenizer.model and no sentencepiece.bpe.model",
        ByteLevelBPE: "tokenizer.json and no vocab.json and no encoder.json",
    }.items():
        assert f"no {names} in this directory; set data.tokenizer.path" in refusal(spec(path=str(tmp_path)))


# Problems of a recipe that are reported before training data is read


def problems(recipe: str, *overrides: str) -> list[str]:
    return check(load(recipe, overrides), load_cluster("local"))


def test_a_masking_recipe_requires_a_mask_token_in_the_file(folders: dict[str, Path]) -> None:
    file = folders["sentencepiece_bpe"]
    kind = ("data.tokenizer.kind=sentencepiece_bpe", "data.tokenizer.lowercase=false", f"data.tokenizer.path={file}")
    assert problems("bert_base", *kind) == [
        f"invalid data.tokenizer: got no mask token in {file}, expected one, because objective mlm needs it; set "
        "mask_token in the tokenizer_config.json next to the file, or use another file"
    ]


def test_a_file_that_does_not_fit_is_reported_by_the_check(folders: dict[str, Path]) -> None:
    file = folders["byte_level_bpe"]
    assert problems("gpt2", f"data.tokenizer.path={file}") == []
    assert problems("gpt2", f"data.tokenizer.path={file}", "data.tokenizer.vocab_size=300") == [
        f"data.tokenizer.vocab_size: invalid value 300, expected at least "
        f"{vocab_from_file(spec_of('byte_level_bpe', file)).size} "
        f"as in the given tokenizer; set "
        f"data.tokenizer.vocab_size={vocab_from_file(spec_of('byte_level_bpe', file)).size}"
    ]
    assert problems("bert_base", f"data.tokenizer.path={file}") == [
        f"data.tokenizer.kind: invalid value wordpiece, expected byte_level_bpe for {file / 'tokenizer.json'}; "
        "set data.tokenizer.kind=byte_level_bpe, or change data.tokenizer.path"
    ]
    assert problems("gpt2", "data.tokenizer.path=/no/such") == [
        "data.tokenizer.path: /no/such: No such file or directory; set data.tokenizer.path to an existing tokenizer"
    ]


@pytest.mark.shared
def test_published_vocabularies_saved_by_transformers_give_its_ids(shared: Path, tmp_path: Path) -> None:
    from transformers import AlbertTokenizer, BertTokenizer  # slow to import

    texts = (shared / "tokenizers" / "hf_fixtures" / "sample_text.txt").read_text(encoding="utf-8").split("\n")
    texts += (shared / "sentences" / "ru.txt").read_text(encoding="utf-8").split("\n")[:200]
    bert = BertTokenizer.from_pretrained(shared / "tokenizers" / "bert-uncased")
    model = SentencePieceProcessor(model_file=str(shared / "tokenizers" / "albert" / "spiece.model"))
    pieces = [(model.id_to_piece(id), model.get_score(id)) for id in range(model.get_piece_size())]
    albert = AlbertTokenizer(vocab=pieces)
    bert.save_pretrained(tmp_path / "bert")
    albert.save_pretrained(tmp_path / "albert")
    for reference, spec in (
        (bert, WordPiece(path=str(tmp_path / "bert"))),
        (albert, Unigram(vocab_size=30_000, lowercase=True, path=str(tmp_path / "albert"))),
    ):
        vocab = vocab_from_file(spec)
        assert [vocab.encode(text) for text in texts] == [
            reference.encode(text, add_special_tokens=False) for text in texts
        ]
        assert (vocab.cls, vocab.sep, vocab.mask) == (
            reference.cls_token_id,
            reference.sep_token_id,
            reference.mask_token_id,
        )
