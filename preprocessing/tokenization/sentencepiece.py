"""Unigram (arXiv:1804.10959) and BPE models of sentencepiece: the specs, then how models are made, read and written."""

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
from preprocessing.tokenization.model_proto import ModelProto, is_bpe
from preprocessing.tokenization.part import (
    SAMPLE_MB,
    Scheme,
    TokenizerBuild,
    described_table,
    from_file,
    require_sizes,
    too_small,
)

Model = Literal["unigram", "bpe"]
# Names of special tokens in published models (ALBERT, XLNet, T5, CamemBERT, ...); the first of each is trained here
NAMES: Final = {
    "pad": ("<pad>",),
    "unk": ("<unk>",),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
SPACE: Final = "\u2581"  # how a piece that begins a word begins
_BYTE: Final = re.compile("<0x[0-9A-F]{2}>")  # a piece for a byte of a character that has none
_MODELS: Final = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model")  # names of models on the hub
_COVERAGE: Final = 0.9995  # of the text is written in characters that get a piece; its trainer's default
_TOO_SMALL: Final = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")  # what its trainer says
_TOO_LARGE: Final = re.compile(r"too high \(\d+\)\. Please set it to a value <= (\d+)")
_THREADS: Final = 8  # a part of the result: each thread sums its own share, so the number may not follow the machine
_LONGEST_BYTES: Final = 1 << 20  # sentencepiece leaves longer lines out; its default of 4,192 loses text in silence
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # SentencePiece.Type
_ROLES: Final = dict.fromkeys(NAMES, "") | {"sentinel": "extra_ids 100"}  # T5 has 100


@spec
class Unigram:
    """Unigram language model over subword tokens (SentencePiece, arXiv:1804.10959).

    A trained tokenizer has the special tokens of ALBERT. Those of a file are read from it: T5 has neither [CLS] nor
    [MASK].
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
    sample_mb: ClassVar[int] = 25  # its trainer takes 20 bytes for each
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
        return f"{self.vocab_size:,} {'lower-cased ' * self.lowercase}unigram pieces{described_table(self)}"

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
    (arXiv:1901.07291, 3.1), where p is a language's fraction of the text: the most frequent language is read at most
    once, others are repeated. The name of a language is part of the source of the text, as for packing `parallel`.
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
            "a share from 0 to 1",
        )

    @property
    def special_roles(self) -> frozenset[str]:
        return _special_roles(self.extra_ids)

    def describe(self) -> str:
        sampled = self.languages and self.language_sampling_alpha < 1
        drawn = f", trained on {len(self.languages)} languages by p^{self.language_sampling_alpha:g}" if sampled else ""
        lower = "lower-cased " * self.lowercase
        bare = " without accents" * self.strip_accents
        return f"{self.vocab_size:,} {lower}BPE pieces of sentencepiece{bare}{drawn}{described_table(self)}"

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
    return _made(_train(texts, spec, model_type), spec.extra_ids)


def _made(model: bytes, num_sentinels: int) -> TokenizerBuild:
    files = _files(model, num_sentinels)
    return TokenizerBuild(_specials(Tokenizer.from_buffer(files["tokenizer.json"])), files)


def _train(texts: Iterable[str], spec: Unigram | SentencePieceBPE, model_type: Model) -> bytes:
    """A model with exactly as many pieces as asked for, specials first; BadInput where the text gives no such model."""
    model, size = io.BytesIO(), spec.vocab_size - spec.extra_ids
    pad, unk, *others = (names[0] for names in NAMES.values())
    lines: Iterable[str] = (line for text in texts for line in _lines(text))
    wanted = {"lowercase": spec.lowercase, "strip_accents": spec.strip_accents}
    if spec.strip_accents:  # the trainer takes such a table from a file only, whose path it would remember
        lines = map(folding.plain(**wanted).normalize, lines)
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
        raise _refusal(str(error), spec.vocab_size, spec.extra_ids) from None
    return model.getvalue() + (folding.build_normalizer(**wanted) if spec.strip_accents else b"")


def _lines(text: str) -> Iterator[str]:
    """What the trainer takes for lines: sentences, those without a blank between them together, as blanks begin words.

    So pieces are trained on the words that they will be cut from. A line has up to 10,000 characters, as the trainer
    of BPE bears 65,535 without a blank; a longer one is cut between sentences.
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


def _refusal(error: str, size: int, num_sentinels: int) -> BadInput:
    """What the trainer says, with the size to ask for."""
    reason = error.splitlines()[0].split("] ")[-1].rstrip(".")
    if found := _TOO_SMALL.search(reason):
        return too_small(size, int(found[1]) + num_sentinels)
    if found := _TOO_LARGE.search(reason):
        most = int(found[1]) + num_sentinels
        return BadInput(
            f"tokenizer.vocab_size is {size}, this text gives at most {most} pieces; write "
            f"data.tokenizer.vocab_size={most}, or give "
            "more text"
        )
    return BadInput(
        f"tokenizer.vocab_size is {size}, this text gives no such model ({reason}); change it or give more text"
    )


def _least_size(texts: Iterable[str], lowercase: bool, strip_accents: bool) -> int:
    """Pieces without which the trainer does not begin: the special ones and the most frequent characters."""
    normalizer = folding.plain(lowercase=lowercase, strip_accents=strip_accents)
    counted: Counter[str] = Counter()
    for text in texts:
        for line in _lines(text):
            counted.update(normalizer.normalize(line))
    most = sorted(counted.values(), reverse=True)
    return len(NAMES) + bisect_left(list(accumulate(most)), _COVERAGE * sum(most)) + bool(most)


def _read(path: Path, spec: Unigram | SentencePieceBPE, model_type: Model) -> TokenizerBuild:
    """A spiece.model, which folds case or drops accents where so asked, or what a tokenizer.json says.

    ALBERT's published model does not fold: its authors' script does it beforehand.
    """
    if found := tokenizer_json.find(path):
        made = tokenizer_json.require_case(tokenizer_json.read(found, spec), spec.path, spec.lowercase)
        about = json.loads(made.files[tokenizer_json.NAME])
        if _is_ours(about):
            same = _made(_from_json(about), spec.extra_ids)
            return same if same.names == made.names else made
        _require_sentinels(Tokenizer.from_buffer(made.files[tokenizer_json.NAME]), spec.extra_ids)
        return made
    content = _read_model(tokenizer_json.inside(path, *_MODELS), model_type)
    if spec.lowercase or spec.strip_accents:
        wanted = folding.build_normalizer(lowercase=spec.lowercase, strip_accents=spec.strip_accents)
        content += wanted if _charsmap(content) != _charsmap(wanted) else b""  # of a field, the last one holds
    return _made(content, spec.extra_ids)


def _read_model(path: Path, model_type: Model) -> bytes:
    content = path.read_bytes()
    try:
        SentencePieceProcessor().LoadFromSerializedProto(content)
        found: Model = "bpe" if is_bpe(content) else "unigram"
        _precompiled(content)
    except Exception:  # `tokenizers` raises nothing narrower
        raise BadInput(f"tokenizer.path: {path}: is no sentencepiece model; change the kind or the file") from None
    if found != model_type:
        kind = "sentencepiece_bpe" if found == "bpe" else "unigram"
        raise BadInput(f"tokenizer.path: {path}: is a model for tokenizer.kind {kind}; change the kind or the file")
    return content


def _is_ours(about: dict[str, Any]) -> bool:
    """Whether a tokenizer.json of Unigram is one of sentencepiece's own models, which is faster and knows no </s>."""
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
    """The sentencepiece model of a tokenizer.json. `tokenizers` alone would take a </s> in a text for the real one."""
    steps = about["normalizer"]["normalizers"]
    charsmap = next((step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"), "")
    special = {token["id"] for token in about["added_tokens"] if token["special"]}
    types = {**dict.fromkeys(special, _CONTROL), about["model"]["unk_id"]: _UNKNOWN}
    model = ModelProto()
    for id, (piece, score) in enumerate(about["model"]["vocab"]):
        model.pieces.add(piece=piece, score=score, type=types.get(id, _NORMAL))
    model.trainer_spec.unk_id = about["model"]["unk_id"]
    model.normalizer_spec.precompiled_charsmap = b64decode(charsmap)
    return model.SerializeToString()


def _files(model: bytes, num_sentinels: int = 0) -> dict[str, bytes]:
    """spiece.model as it is, and as a tokenizer.json that gives the same ids but for ties; sentinels are its last."""
    processor = SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(id) for id in range(processor.get_piece_size())]
    uses_bytes = any(map(processor.is_byte, range(len(pieces))))
    if is_bpe(model):
        ids = {piece: id for id, piece in enumerate(pieces)}
        unk = pieces[processor.unk_id()]
        merges = _merges(processor, ids)
        tokenizer = Tokenizer(models.BPE(ids, merges, unk_token=unk, fuse_unk=True, byte_fallback=uses_bytes))
    else:
        scored = [(piece, processor.get_score(id)) for id, piece in enumerate(pieces)]
        tokenizer = Tokenizer(models.Unigram(scored, processor.unk_id(), byte_fallback=uses_bytes))
    tokenizer.normalizer = normalizers.Sequence(
        [*_precompiled(model), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    control = [piece for id, piece in enumerate(pieces) if processor.is_control(id) or processor.is_unknown(id)]
    tokenizer.add_special_tokens([*control, *reversed(_sentinels(num_sentinels))])
    known, names = tokenizer.get_vocab(), _specials(tokenizer)
    _require_sentinels(tokenizer, num_sentinels)
    if sep := names.get("sep"):
        front = [names["cls"]] if "cls" in names else []
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*front, "$A", sep],
            pair=[*front, "$A", sep, "$B:1", f"{sep}:1"],
            special_tokens=[(name, known[name]) for name in (*front, sep)],
        )
    return {"tokenizer.json": tokenizer.to_str().encode(), "spiece.model": model}


def _require_sentinels(tokenizer: Tokenizer, count: int) -> None:
    """BadInput unless the last pieces are the sentinels."""
    known = tokenizer.get_vocab()
    if [known.get(name) for name in _sentinels(count)] != [len(known) - 1 - n for n in range(count)]:
        raise BadInput(
            "tokenizer.path: has fewer sentinels, or not at its end; set tokenizer.extra_ids to as many as it has"
        )


def _sentinels(count: int) -> list[str]:
    """Names of T5's sentinels, from the highest id down; text never gives them.

    >>> _sentinels(2)
    ['<extra_id_0>', '<extra_id_1>']
    """
    return [f"<extra_id_{number}>" for number in range(count)]


def _specials(tokenizer: Tokenizer) -> dict[str, str]:
    """Role -> name of the special tokens that a model has; T5 has no [CLS] and no [MASK]."""
    there = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    found = {role: next((name for name in names if name in there), "") for role, names in NAMES.items()}
    return {role: name for role, name in found.items() if name}


def _merges(processor: SentencePieceProcessor, ids: dict[str, int]) -> list[tuple[str, str]]:
    """The merges of a BPE model: every pair of pieces that makes a piece, best score first."""
    ranked = sorted(
        (id for id in ids.values() if not (processor.is_control(id) or processor.is_unknown(id))),
        key=lambda id: (-processor.get_score(id), id),
    )
    pieces = [processor.id_to_piece(id) for id in ranked]
    pairs = ((piece[:cut], piece[cut:]) for piece in pieces for cut in range(1, len(piece)))
    return [(left, right) for left, right in pairs if left in ids and right in ids]


def _charsmap(model: bytes) -> bytes:
    """The table by which a model normalises text."""
    return ModelProto.FromString(model).normalizer_spec.precompiled_charsmap


def _precompiled(model: bytes) -> list[normalizers.Precompiled]:
    """The normalizer of `tokenizers` that applies this table; none if the model has no table."""
    charsmap = _charsmap(model)
    return [normalizers.Precompiled(charsmap)] if charsmap else []
