"""Parses protobuf text with message definitions copied from the .proto files of other projects."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

_TYPES = {
    "string": Field.TYPE_STRING,
    "int64": Field.TYPE_INT64,
    "int32": Field.TYPE_INT32,
    "uint32": Field.TYPE_UINT32,
    "uint64": Field.TYPE_UINT64,
}
_LABELS = {"optional": Field.LABEL_OPTIONAL, "required": Field.LABEL_REQUIRED, "repeated": Field.LABEL_REPEATED}

TRITON = {
    "Reshape": ["repeated int64 shape = 1"],
    "Tensor": ["optional string name = 1", "optional DataType data_type = 2", "repeated int64 dims = 3",
               "optional Reshape reshape = 5"],
    "Batching": [],
    "Config": ["optional string name = 1", "optional string platform = 2", "optional int32 max_batch_size = 4",
               "repeated Tensor input = 5", "repeated Tensor output = 6", "optional Batching dynamic_batching = 11"],
}  # fmt: skip
"""A part of Triton's model_config.proto."""
TORCHEASYREC = {
    "IdFeature": ["required string feature_name = 1", "required string expression = 2",
                  "required uint32 embedding_dim = 4", "optional uint64 num_buckets = 6",
                  "optional string pooling = 10"],
    "Feature": ["optional IdFeature id_feature = 1"],
    "Config": ["repeated Feature feature_configs = 5"],
}  # fmt: skip
"""A part of TorchEasyRec's feature.proto and pipeline.proto."""


def read(text: str, messages: dict[str, list[str]]) -> Any:
    """Parses the text format of the last message; refuses unknown fields."""
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="x", syntax="proto2")
    kinds = file.enum_type.add(name="DataType")
    for place, name in enumerate(("TYPE_STRING", "TYPE_INT64", "TYPE_FP64", "TYPE_FP32"), 1):
        kinds.value.add(name=name, number=place)
    for name, lines in messages.items():
        message = file.message_type.add(name=name)
        for line in lines:
            label, kind, word, _, number = line.split()
            field = message.field.add(name=word, number=int(number), label=_LABELS[label])
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type_name = f".x.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"x.{list(messages)[-1]}"))()
    return text_format.Parse(text, found)
