"""Unigram (arXiv:1804.10959) and BPE models of sentencepiece: the specs, then training, reading and writing."""

import io
import json
import re
from base64 import b64decode
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from preprocessing.errors import BadInput
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.text import sentences
from preprocessing.tokenization import folding, tokenizer_json
from preprocessing.tokenization.cuts import LONGEST, group_sentences
from preprocessing.tokenization.model_proto import is_bpe, load_message
from preprocessing.tokenization.part import (
    SAMPLE_MB,
    Scheme,
    TokenizerBuild,
    describe_padding,
    from_file,
    require_sizes,
    too_small,
)

Model = Literal["unigram", "bpe"]
# Names of special tokens in published models (ALBERT, XLNet, T5, CamemBERT, ...); trained models use the first of each
NAMES: Final = {
    "pad": ("<pad>",),
    "unk": ("<unk>",),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
SPACE: Final = "\u2581"  # prefix of a token at the start of a word
_BYTE: Final = re.compile("<0x[0-9A-F]{2}>")  # a token for one byte of a character without a token
_MODELS: Final = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model")  # names of models on the hub
_COVERAGE: Final = 0.9995  # fraction of the text whose characters are tokens; the trainer's default
_TOO_SMALL: Final = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")  # message of the trainer
_TOO_LARGE: Final = re.compile(r"too high \(\d+\)\. Please set it to a value <= (\d+)")
_THREADS: Final = 8  # fixed, because the result depends on it: each thread sums its part of the text
_LONGEST_BYTES: Final = 1 << 20  # sentencepiece omits longer lines; its default of 4,192 loses text without a warning
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # SentencePiece.Type
_ROLES: Final = dict.fromkeys(NAMES, "") | {"sentinel": "extra_ids 100"}  # T5 has 100


@spec
class Unigram:
    """Unigram language model over subword tokens (SentencePiece, arXiv:1804.10959).

    A trained tokenizer has the special tokens of ALBERT. A loaded tokenizer has those of its file; T5 has neither [CLS]
    nor [MASK].
    """

    kind: Literal["unigram"] = "unigram"
    vocab_size: int = key(default=32000, doc="Number of tokens, special tokens included.")
    lowercase: bool = key(default=False, doc="Whether case is folded; accents stay (SentencePiece's nmt_nfkc_cf).")
    extra_ids: int = key(
        default=0, doc="Number of sentinel tokens for spans, the last IDs of the vocabulary; T5 has 100."
    )
    padded_vocab_size: int = key(
        default=0, doc="Rows of the token table if padded beyond vocab_size; 0: one per token."
    )
    path: str = key(
        default="", doc="Path to spiece.model, tokenizer.json or their directory; empty: train a tokenizer."
    )

    strip_accents: ClassVar[bool] = False
    roles: ClassVar[Mapping[str, str]] = _ROLES
    token_order: ClassVar[str] = "training"
    languages: ClassVar[tuple[str, ...]] = ()
    language_sampling_alpha: ClassVar[float] = 1.0
    strips_marks: ClassVar[str] = ""
    is_of_bytes: ClassVar[bool] = False
    sample_mb: ClassVar[int] = 25  # the trainer needs 20 bytes of memory per byte
    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"vocab_size": 4_096, "padded_vocab_size": 0},
        "small": {"vocab_size": 16_384, "padded_vocab_size": 0},
    }

    def __post_init__(self) -> None:
        require_sizes(self)

    @property
    def special_roles(self) -> frozenset[str]:
        return _special_roles(self.extra_ids)

    def describe(self) -> str:
        return f"{self.vocab_size:,} {'lower-cased ' * self.lowercase}unigram tokens{describe_padding(self)}"

    def make(self, texts: Iterable[str]) -> TokenizerBuild:
        return _make(self, "unigram", texts)

    def least_size(self, texts: Iterable[str]) -> int:
        return 0 if self.path else _least_size(texts, self.lowercase, self.strip_accents) + self.extra_ids

    @staticmethod
    def reads(scheme: Scheme) -> bool:
        return scheme.model == "Unigram" and scheme.marks_spaces

    @staticmethod
    def starts_word(piece: str) -> bool:
        return piece[0] == SPACE

    @staticmethod
    def ends_word(piece: str) -> bool:
        return False

    @staticmethod
    def utf8(piece: str) -> bytes:
        return _utf8(piece)


@spec
class SentencePieceBPE:
    """BPE over characters by SentencePiece (arXiv:1508.07909).

    Its special tokens are those of tokenizer `unigram`. Languages are sampled with q proportional to p^alpha
    (arXiv:1901.07291, 3.1), where p is a language's fraction of the text. The most frequent language is read at most
    once, and others are repeated. The name of a language is part of the source of the text, as for packing `parallel`.
    """

    kind: Literal["sentencepiece_bpe"] = "sentencepiece_bpe"
    vocab_size: int = key(default=32000, doc="Number of tokens, special tokens included.")
    lowercase: bool = key(default=False, doc="Whether case is folded; accents stay (SentencePiece's nmt_nfkc_cf).")
    strip_accents: bool = key(
        default=False, doc="Whether marks above and below letters are removed in every script, as in XLM's code."
    )
    extra_ids: int = key(
        default=0, doc="Number of sentinel tokens for spans, the last IDs of the vocabulary; T5 has 100."
    )
    language_sampling_alpha: float = key(
        default=1.0, doc="Exponent alpha of language sampling, q ~ p^alpha; 1: as frequent as in the text."
    )
    languages: tuple[str, ...] = key(default=(), doc="Language names to sample by; []: one language.")
    padded_vocab_size: int = key(
        default=0, doc="Rows of the token table if padded beyond vocab_size; 0: one per token."
    )
    path: str = key(
        default="", doc="Path to spiece.model, tokenizer.json or their directory; empty: train a tokenizer."
    )

    roles: ClassVar[Mapping[str, str]] = _ROLES
    token_order: ClassVar[str] = "training"
    strips_marks: ClassVar[str] = "strip_accents"
    is_of_bytes: ClassVar[bool] = False
    sample_mb: ClassVar[int] = SAMPLE_MB
    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"vocab_size": 4_096, "padded_vocab_size": 0, "languages": []},
        "small": {"vocab_size": 16_384, "padded_vocab_size": 0, "languages": []},
    }

    def __post_init__(self) -> None:
        require_sizes(self)
        require(
            0 <= self.language_sampling_alpha <= 1,
            "tokenizer.language_sampling_alpha",
            self.language_sampling_alpha,
            "a number from 0 to 1",
        )

    @property
    def special_roles(self) -> frozenset[str]:
        return _special_roles(self.extra_ids)

    def describe(self) -> str:
        sampled = self.languages and self.language_sampling_alpha < 1
        sampling = f", {len(self.languages)} languages sampled by p^{self.language_sampling_alpha:g}" if sampled else ""
        lower = "lower-cased " * self.lowercase
        accents = " without accents" * self.strip_accents
        return f"{self.vocab_size:,} {lower}SentencePiece BPE tokens{accents}{sampling}{describe_padding(self)}"

    def make(self, texts: Iterable[str]) -> TokenizerBuild:
        return _make(self, "bpe", texts)

    def least_size(self, texts: Iterable[str]) -> int:
        return 0 if self.path else _least_size(texts, self.lowercase, self.strip_accents) + self.extra_ids

    @staticmethod
    def reads(scheme: Scheme) -> bool:
        return (
            scheme.model == "BPE" and not (scheme.is_of_bytes or scheme.inside or scheme.at_end) and scheme.marks_spaces
        )

    @staticmethod
    def starts_word(piece: str) -> bool:
        return piece[0] == SPACE

    @staticmethod
    def ends_word(piece: str) -> bool:
        return False

    @staticmethod
    def utf8(piece: str) -> bytes:
        return _utf8(piece)


def _utf8(piece: str) -> bytes:
    """
    >>> _utf8(f"{SPACE}the"), _utf8("<0xE2>")
    (b' the', b'\\xe2')
    """
    return bytes([int(piece[3:5], 16)]) if _BYTE.fullmatch(piece) else piece.replace(SPACE, " ").encode()


def _special_roles(num_sentinels: int) -> frozenset[str]:
    return frozenset(NAMES) | ({"sentinel"} if num_sentinels else frozenset())


def _make(spec: Unigram | SentencePieceBPE, model_type: Model, texts: Iterable[str]) -> TokenizerBuild:
    if spec.path:
        return from_file(spec.path, _read, spec, model_type)
    return _build(_train(texts, spec, model_type), spec.extra_ids)


def _build(model: bytes, num_sentinels: int) -> TokenizerBuild:
    files = _files(model, num_sentinels)
    return TokenizerBuild(_specials(Tokenizer.from_buffer(files["tokenizer.json"])), files)


def _train(texts: Iterable[str], spec: Unigram | SentencePieceBPE, model_type: Model) -> bytes:
    """Train a model with exactly the requested number of tokens, special tokens first.

    Raises BadInput if this text does not allow it.
    """
    model, size = io.BytesIO(), spec.vocab_size - spec.extra_ids
    pad, unk, *others = (names[0] for names in NAMES.values())
    lines: Iterable[str] = (line for text in texts for line in _lines(text))
    folds = {"lowercase": spec.lowercase, "strip_accents": spec.strip_accents}
    if spec.strip_accents:  # the trainer reads a table only from a file, and stores its path in the model
        lines = map(folding.plain(**folds).normalize, lines)
    try:
        SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_writer=model,
            model_type=model_type,
            vocab_size=size,
            normalization_rule_name="identity" if spec.strip_accents else folding.rule(lowercase=spec.lowercase),
            num_threads=_THREADS,
            max_sentence_length=_LONGEST_BYTES,
            control_symbols=others,
            pad_id=0,
            pad_piece=pad,
            unk_id=1,
            unk_piece=unk,
            bos_id=-1,
            eos_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _training_error(str(error), spec.vocab_size, spec.extra_ids) from None
    return model.getvalue() + (folding.build_normalizer(**folds) if spec.strip_accents else b"")


def _lines(text: str) -> Iterator[str]:
    """Yield the lines for the trainer: one sentence each, or several if there is no blank between them.

    Blanks start words, so the trainer reads the same words as the tokenizer later. A line has at most 10,000
    characters, because the BPE trainer supports at most 65,535 without a blank; longer lines are cut between sentences.
    """
    for group in group_sentences(sentences(text), "blanks"):
        line, size = list[str](), 0
        for sentence in group:
            if line and size + len(sentence) > LONGEST:
                yield "".join(line).strip()
                line, size = [], 0
            line.append(sentence)
            size += len(sentence)
        yield "".join(line).strip()


def _training_error(error: str, size: int, num_sentinels: int) -> BadInput:
    """Return the error for a message of the trainer, with a suggested vocab_size."""
    reason = error.splitlines()[0].split("] ")[-1].rstrip(".")
    if match := _TOO_SMALL.search(reason):
        return too_small(size, int(match[1]) + num_sentinels)
    if match := _TOO_LARGE.search(reason):
        most = int(match[1]) + num_sentinels
        return BadInput(
            f"tokenizer.vocab_size: invalid value {size}, expected at most {most} for this text; set "
            f"data.tokenizer.vocab_size={most}, or add text"
        )
    return BadInput(
        f"tokenizer.vocab_size: training {size} tokens on this text failed ({reason}); change the value or add text"
    )


def _least_size(texts: Iterable[str], lowercase: bool, strip_accents: bool) -> int:
    """Return the minimum number of tokens for the trainer: special tokens and the most frequent characters."""
    normalizer = folding.plain(lowercase=lowercase, strip_accents=strip_accents)
    count: Counter[str] = Counter()
    for text in texts:
        for line in _lines(text):
            count.update(normalizer.normalize(line))
    counts = sorted(count.values(), reverse=True)
    return len(NAMES) + bisect_left(list(accumulate(counts)), _COVERAGE * sum(counts)) + bool(counts)


def _read(path: Path, spec: Unigram | SentencePieceBPE, model_type: Model) -> TokenizerBuild:
    """Read a tokenizer.json, or a spiece.model, to which the spec may add folding of case and accents.

    ALBERT's published model does not fold case, because its authors' script does so before.
    """
    if file := tokenizer_json.find(path):
        build = tokenizer_json.require_case(tokenizer_json.read(file, spec), spec.path, spec.lowercase)
        about = json.loads(build.files[tokenizer_json.NAME])
        if _is_sentencepiece(about):
            equivalent = _build(_from_json(about), spec.extra_ids)
            return equivalent if equivalent.names == build.names else build
        _require_sentinels(Tokenizer.from_buffer(build.files[tokenizer_json.NAME]), spec.extra_ids)
        return build
    content = _read_model(tokenizer_json.inside(path, *_MODELS), model_type)
    if spec.lowercase or spec.strip_accents:
        normalizer = folding.build_normalizer(lowercase=spec.lowercase, strip_accents=spec.strip_accents)
        content += (
            normalizer if _charsmap(content) != _charsmap(normalizer) else b""
        )  # the last value of a field counts
    return _build(content, spec.extra_ids)


def _read_model(path: Path, model_type: Model) -> bytes:
    content = path.read_bytes()
    try:
        SentencePieceProcessor().LoadFromSerializedProto(content)
        model: Model = "bpe" if is_bpe(content) else "unigram"
        _make_precompiled(content)
    except Exception:  # `tokenizers` raises no narrower exception
        raise BadInput(
            f"tokenizer.path: {path}: not a valid sentencepiece model; change data.tokenizer.kind or the path"
        ) from None
    if model != model_type:
        kind_of = {"bpe": "sentencepiece_bpe", "unigram": "unigram"}
        raise BadInput(
            f"tokenizer.kind: invalid value {kind_of[model_type]}, expected {kind_of[model]} for {path}; set "
            f"data.tokenizer.kind={kind_of[model]}, or change the path"
        )
    return content


def _is_sentencepiece(about: dict[str, Any]) -> bool:
    """Return whether a tokenizer.json can be converted to a Unigram model of sentencepiece.

    The converted model is faster and encodes the text </s> as ordinary text.
    """
    if about["model"]["type"] != "Unigram" or (about["pre_tokenizer"] or {}).get("type") != "Metaspace":
        return False
    steps = (about["normalizer"] or {}).get("normalizers", [])
    drops = [step["type"] for step in steps if step["type"] != "Precompiled"] == ["Strip", "Replace"] and len(steps) < 4
    single = {"pattern": {"Regex": " {2,}"}, "content": SPACE}, {"pattern": {"Regex": " {2,}"}, "content": " "}
    drops = drops and steps[-2]["strip_right"] and {key: steps[-1][key] for key in ("pattern", "content")} in single
    space = about["pre_tokenizer"]
    plain = space.get("prepend_scheme", "always") == "always" and space.get("split", True)
    pieces = {piece for piece, _ in about["model"]["vocab"]}
    added = all(token["special"] and token["content"] in pieces for token in about["added_tokens"])
    return plain and added and drops


def _from_json(about: dict[str, Any]) -> bytes:
    """Convert a tokenizer.json to a sentencepiece model."""
    steps = about["normalizer"]["normalizers"]
    charsmap = next((step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"), "")
    special = {token["id"] for token in about["added_tokens"] if token["special"]}
    types = {**dict.fromkeys(special, _CONTROL), about["model"]["unk_id"]: _UNKNOWN}
    model = load_message()()
    for id, (piece, score) in enumerate(about["model"]["vocab"]):
        model.pieces.add(piece=piece, score=score, type=types.get(id, _NORMAL))
    model.trainer_spec.unk_id = about["model"]["unk_id"]
    model.normalizer_spec.precompiled_charsmap = b64decode(charsmap)
    return model.SerializeToString()


def _files(model: bytes, num_sentinels: int = 0) -> dict[str, bytes]:
    """Return the files spiece.model and tokenizer.json, whose last tokens are the sentinels.

    Both give the same IDs, except for ties.
    """
    processor = SentencePieceProcessor(model_proto=model)
    tokens = [processor.id_to_piece(id) for id in range(processor.get_piece_size())]
    uses_bytes = any(map(processor.is_byte, range(len(tokens))))
    if is_bpe(model):
        ids = {piece: id for id, piece in enumerate(tokens)}
        unk = tokens[processor.unk_id()]
        merges = _merges(processor, ids)
        tokenizer = Tokenizer(models.BPE(ids, merges, unk_token=unk, fuse_unk=True, byte_fallback=uses_bytes))
    else:
        scored = [(piece, processor.get_score(id)) for id, piece in enumerate(tokens)]
        tokenizer = Tokenizer(models.Unigram(scored, processor.unk_id(), byte_fallback=uses_bytes))
    tokenizer.normalizer = normalizers.Sequence(
        [*_make_precompiled(model), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    control = [piece for id, piece in enumerate(tokens) if processor.is_control(id) or processor.is_unknown(id)]
    tokenizer.add_special_tokens([*control, *reversed(_sentinels(num_sentinels))])
    id_of, names = tokenizer.get_vocab(), _specials(tokenizer)
    _require_sentinels(tokenizer, num_sentinels)
    if sep := names.get("sep"):
        front = [names["cls"]] if "cls" in names else []
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*front, "$A", sep],
            pair=[*front, "$A", sep, "$B:1", f"{sep}:1"],
            special_tokens=[(name, id_of[name]) for name in (*front, sep)],
        )
    return {"tokenizer.json": tokenizer.to_str().encode(), "spiece.model": model}


def _require_sentinels(tokenizer: Tokenizer, count: int) -> None:
    """Raise BadInput unless the last `count` tokens are the sentinels."""
    id_of = tokenizer.get_vocab()
    if [id_of.get(name) for name in _sentinels(count)] != [len(id_of) - 1 - n for n in range(count)]:
        raise BadInput(
            f"tokenizer.path: the last {count} tokens are not the sentinels <extra_id_0> ...; set "
            "data.tokenizer.extra_ids to the number of sentinels in the file"
        )


def _sentinels(count: int) -> list[str]:
    """Return the names of T5's sentinels, by descending ID.

    >>> _sentinels(2)
    ['<extra_id_0>', '<extra_id_1>']
    """
    return [f"<extra_id_{number}>" for number in range(count)]


def _specials(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the special tokens of a tokenizer, role -> name; T5 has no [CLS] and no [MASK]."""
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    name_of = {role: next((name for name in names if name in special), "") for role, names in NAMES.items()}
    return {role: name for role, name in name_of.items() if name}


def _merges(processor: SentencePieceProcessor, ids: dict[str, int]) -> list[tuple[str, str]]:
    """Return the merges of a BPE model: all pairs of tokens that form a token, highest score first."""
    ranked = sorted(
        (id for id in ids.values() if not (processor.is_control(id) or processor.is_unknown(id))),
        key=lambda id: (-processor.get_score(id), id),
    )
    pieces = [processor.id_to_piece(id) for id in ranked]
    pairs = ((piece[:cut], piece[cut:]) for piece in pieces for cut in range(1, len(piece)))
    return [(left, right) for left, right in pairs if left in ids and right in ids]


def _charsmap(model: bytes) -> bytes:
    """Return the normalization table of a model."""
    return load_message().FromString(model).normalizer_spec.precompiled_charsmap


def _make_precompiled(model: bytes) -> list[normalizers.Precompiled]:
    """Return the normalizer of `tokenizers` for this table; empty if the model has no table."""
    charsmap = _charsmap(model)
    return [normalizers.Precompiled(charsmap)] if charsmap else []
