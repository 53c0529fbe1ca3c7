"""The parts of sentencepiece's model format that Sesame reads or writes, as protocol buffer messages.

They are declared here because the module `sentencepiece_model_pb2` inside sentencepiece 0.2.3 cannot be imported: it
requires protobuf 7.36.1 or newer, and Apache Beam 2.77 requires protobuf older than 7.
"""

from functools import cache
from typing import Any, Final

_SCHEMA: Final = """
name: "sentencepiece_model.proto" package: "sentencepiece"
message_type { name: "ModelProto"
  field { name: "pieces" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "SentencePiece" }
  field { name: "trainer_spec" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "TrainerSpec" }
  field { name: "normalizer_spec" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "NormalizerSpec" } }
message_type { name: "SentencePiece"
  field { name: "piece" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "score" number: 2 label: LABEL_OPTIONAL type: TYPE_FLOAT }
  field { name: "type" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "1" } }
message_type { name: "TrainerSpec"
  field { name: "model_type" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "1" }
  field { name: "unk_id" number: 40 label: LABEL_OPTIONAL type: TYPE_INT32 } }
message_type { name: "NormalizerSpec"
  field { name: "precompiled_charsmap" number: 2 label: LABEL_OPTIONAL type: TYPE_BYTES } }
"""
_BPE: Final = 2  # TrainerSpec.ModelType; 1 is unigram


@cache
def load_message(name: str = "ModelProto") -> Any:
    """The class of a message. protobuf is imported here, because most processes read no model of sentencepiece."""
    from google.protobuf import text_format
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()  # not the default one, in which `transformers` declares messages of the same names
    pool.AddSerializedFile(text_format.Parse(_SCHEMA, FileDescriptorProto()).SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"sentencepiece.{name}"))


def is_bpe(model: bytes) -> bool:
    """Whether a model of sentencepiece is BPE; otherwise it is a unigram language model."""
    return load_message().FromString(model).trainer_spec.model_type == _BPE
