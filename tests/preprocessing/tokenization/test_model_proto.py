"""The message definitions of Sesame equal SentencePiece's own schema, and a damaged model is refused in one line."""

import json
import random
from pathlib import Path

import pytest
from google.protobuf.runtime_version import VersionError
from sentencepiece import SentencePieceProcessor

from preprocessing.errors import BadInput
from preprocessing.tokenization import SentencePieceBPE, Unigram
from preprocessing.tokenization.model_proto import is_bpe, load_message
from preprocessing.tokenization.sentencepiece import _charsmap, _from_json

TEXTS = ["The quick brown fox jumps over the lazy dog.", "Caf\u00e9 na\u00efve, 3.5% of the time."] * 20


def made(spec: Unigram | SentencePieceBPE) -> dict[str, bytes]:
    return dict(spec.make(TEXTS).files)


def full_schema() -> type:
    """Return SentencePiece's ModelProto class with all fields, as `transformers` ships it."""
    from transformers.utils.sentencepiece_model_pb2_new import ModelProto as Full  # slow to import

    return Full


def test_the_sentencepiece_module_still_requires_another_protobuf_version() -> None:
    """When this test fails, `model_proto` can import that module instead of its own schema."""
    with pytest.raises(VersionError):
        import sentencepiece.sentencepiece_model_pb2  # noqa: F401


def test_each_declared_field_equals_the_full_schema() -> None:
    full, ours = full_schema().DESCRIPTOR.file, load_message().DESCRIPTOR.file  # type: ignore[attr-defined]
    nested = {"SentencePiece": full.message_types_by_name["ModelProto"].nested_types_by_name["SentencePiece"]}
    for name, message in ours.message_types_by_name.items():
        theirs = nested.get(name) or full.message_types_by_name[name]
        for field in message.fields:
            same = theirs.fields_by_name[field.name]
            assert (field.number, field.is_repeated, field.cpp_type) == (
                same.number,
                same.is_repeated,
                field.CPPTYPE_INT32 if same.cpp_type == field.CPPTYPE_ENUM else same.cpp_type,
            )
            if field.message_type is None and same.has_default_value:
                assert field.default_value == same.default_value


@pytest.mark.parametrize("spec", [Unigram(vocab_size=42, lowercase=True), SentencePieceBPE(vocab_size=60)])
def test_model_type_and_charsmap_are_read_as_with_the_full_schema(spec: Unigram | SentencePieceBPE) -> None:
    model = made(spec)["spiece.model"]
    full = full_schema().FromString(model)  # type: ignore[attr-defined]
    assert is_bpe(model) == (full.trainer_spec.model_type == 2) == isinstance(spec, SentencePieceBPE)
    assert _charsmap(model) == full.normalizer_spec.precompiled_charsmap


def test_a_written_model_has_the_bytes_of_the_full_schema() -> None:
    files = made(Unigram(vocab_size=44))
    written = _from_json(json.loads(files["tokenizer.json"]))
    assert full_schema().FromString(written).SerializeToString() == written  # type: ignore[attr-defined]
    before, after = (SentencePieceProcessor(model_proto=each) for each in (files["spiece.model"], written))
    assert before.encode(TEXTS[:2]) == after.encode(TEXTS[:2])


def test_a_damaged_model_is_bad_input(tmp_path: Path) -> None:
    """Each of 200 models with a changed or missing part is either read or refused in one line."""
    good, damage, path = made(Unigram(vocab_size=44))["spiece.model"], random.Random(0), tmp_path / "spiece.model"
    refused = list[str]()
    for _ in range(200):
        at = damage.choice((damage.randrange(len(good)), damage.randrange(1_000)))
        rest = damage.choice((b"", bytes([good[at] ^ 1 << damage.randrange(8)]) + good[at + 1 :], good[at + 1 :]))
        path.write_bytes(good[:at] + rest)
        try:
            Unigram(vocab_size=1_000, path=str(path)).make([])
        except BadInput as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert all(each.startswith("tokenizer.path: ") and "\n" not in each for each in refused)
