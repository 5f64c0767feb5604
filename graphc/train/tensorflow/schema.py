"""The parts of TensorFlow's .proto files that an import needs: field names and numbers are theirs.

Fields that are not listed are skipped. The package name is our own, so that TensorFlow in the same
process is not disturbed.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from graphc.errors import ModelFileError
from graphc.ir.extras import importing
from graphc.ir.mapped import LARGE_ARRAY, LARGE_FILE, MappedFile, map_file
from graphc.store.proto_schema import message_classes, tensor_proto
from graphc.train.tensorflow.proto_cut import CUT, NotAMessage, field, without_large_fields

_LEFT_OUT = "int64 left_out_offset = 100001; int64 left_out_size = 100002;"
_OTHERS = """
message ListValue {
  repeated bytes s = 2; repeated int64 i = 3; repeated float f = 4; repeated bool b = 5;
  repeated DataType type = 6; repeated TensorShapeProto shape = 7; repeated TensorProto tensor = 8;
  repeated NameAttrList func = 9;
}
message AttrValue {
  oneof value {
    bytes s = 2; int64 i = 3; float f = 4; bool b = 5; DataType type = 6;
    TensorShapeProto shape = 7; TensorProto tensor = 8; ListValue list = 1;
    NameAttrList func = 10; string placeholder = 9;
  }
}
message NameAttrList { string name = 1; map<string, AttrValue> attr = 2; }
message NodeDef {
  string name = 1; string op = 2; repeated string input = 3; string device = 4;
  map<string, AttrValue> attr = 5;
}
message ArgDef {
  string name = 1; string description = 2; DataType type = 3; string type_attr = 4;
  string number_attr = 5; string type_list_attr = 6; bool is_ref = 16;
}
message OpDef {
  string name = 1; repeated ArgDef input_arg = 2; repeated ArgDef output_arg = 3;
  repeated string control_output = 20; bool is_stateful = 17;
}
message FunctionDef {
  OpDef signature = 1; repeated NodeDef node_def = 3; map<string, string> ret = 4;
  map<string, AttrValue> attr = 5; map<string, string> control_ret = 6;
}
message GradientDef { string function_name = 1; string gradient_func = 2; }
message FunctionDefLibrary { repeated FunctionDef function = 1; repeated GradientDef gradient = 2; }
message VersionDef { int32 producer = 1; int32 min_consumer = 2; repeated int32 bad_consumers = 3; }
message GraphDef {
  repeated NodeDef node = 1; FunctionDefLibrary library = 2; int32 version = 3;
  VersionDef versions = 4;
}

message TensorInfo { string name = 1; DataType dtype = 2; TensorShapeProto tensor_shape = 3; }
message SignatureDef {
  map<string, TensorInfo> inputs = 1; map<string, TensorInfo> outputs = 2; string method_name = 3;
}
message NodeList { repeated string value = 1; }
message BytesList { repeated bytes value = 1; }
message CollectionDef { oneof kind { NodeList node_list = 1; BytesList bytes_list = 2; } }
message VariableDef {
  string variable_name = 1; string initializer_name = 2; string snapshot_name = 3;
  bool is_resource = 5; string initial_value_name = 6;
}
message SaverDef {
  string filename_tensor_name = 1; string save_tensor_name = 2; string restore_op_name = 3;
  int32 version = 7;
}
message MetaInfoDef {
  string meta_graph_version = 1; repeated string tags = 4; string tensorflow_version = 5;
}
message ObjectReference { int32 node_id = 1; string local_name = 2; }
message SavedVariable {
  DataType dtype = 1; TensorShapeProto shape = 2; bool trainable = 3; string name = 6;
}
message SavedObject { repeated ObjectReference children = 1; SavedVariable variable = 7; }
message SavedObjectGraph { repeated SavedObject nodes = 1; }
message AssetFileDef { TensorInfo tensor_info = 1; string filename = 2; }
message MetaGraphDef {
  MetaInfoDef meta_info_def = 1; GraphDef graph_def = 2; SaverDef saver_def = 3;
  map<string, CollectionDef> collection_def = 4; map<string, SignatureDef> signature_def = 5;
  repeated AssetFileDef asset_file_def = 6; SavedObjectGraph object_graph_def = 7;
}
message SavedModel { int64 saved_model_schema_version = 1; repeated MetaGraphDef meta_graphs = 2; }

message SerializedTensor { string name = 1; string full_name = 2; string checkpoint_key = 3; }
message TrackableObject {
  repeated ObjectReference children = 1; repeated SerializedTensor attributes = 2;
}
message TrackableObjectGraph { repeated TrackableObject nodes = 1; }
message BundleHeaderProto { int32 num_shards = 1; int32 endianness = 2; VersionDef version = 3; }
message SliceExtent { int64 start = 1; oneof has_length { int64 length = 2; } }
message TensorSliceProto { repeated SliceExtent extent = 1; }
message BundleEntryProto {
  DataType dtype = 1; TensorShapeProto shape = 2; int32 shard_id = 3; int64 offset = 4;
  int64 size = 5; fixed32 crc32c = 6; repeated TensorSliceProto slices = 7;
}
message SavedSliceMeta {
  string name = 1; TensorShapeProto shape = 2; DataType type = 3;
  repeated TensorSliceProto slice = 4;
}
message SavedTensorSliceMeta { repeated SavedSliceMeta tensor = 1; VersionDef versions = 2; }
message SavedSlice { string name = 1; TensorSliceProto slice = 2; TensorProto data = 3; }
message SavedTensorSlices { SavedTensorSliceMeta meta = 1; SavedSlice data = 2; }
"""
SCHEMA = tensor_proto("DataType", _LEFT_OUT) + _OTHERS

# Where a large file has the contents of tensors, which stay in it. The two fields of a TensorProto
# with the numbers from 100001 on, which TensorFlow does not have, say where each was.
_INSIDE = {
    ("SavedModel", 2): "MetaGraphDef", ("MetaGraphDef", 2): "GraphDef",
    ("GraphDef", 1): "NodeDef", ("GraphDef", 2): "FunctionDefLibrary",
    ("FunctionDefLibrary", 1): "FunctionDef", ("FunctionDef", 3): "NodeDef",
    ("NodeDef", 5): "an attribute", ("an attribute", 2): "AttrValue",
    ("AttrValue", 8): "TensorProto", ("TensorProto", 4): CUT,
}  # fmt: skip

# The members of TensorFlow's DataType: text files name them.
_DATA_TYPES = {
    "DT_INVALID": 0, "DT_FLOAT": 1, "DT_DOUBLE": 2, "DT_INT32": 3, "DT_UINT8": 4, "DT_INT16": 5,
    "DT_INT8": 6, "DT_STRING": 7, "DT_COMPLEX64": 8, "DT_INT64": 9, "DT_BOOL": 10, "DT_QINT8": 11,
    "DT_QUINT8": 12, "DT_QINT32": 13, "DT_BFLOAT16": 14, "DT_QINT16": 15, "DT_QUINT16": 16,
    "DT_UINT16": 17, "DT_COMPLEX128": 18, "DT_HALF": 19, "DT_RESOURCE": 20, "DT_VARIANT": 21,
    "DT_UINT32": 22, "DT_UINT64": 23, "DT_FLOAT8_E5M2": 24, "DT_FLOAT8_E4M3FN": 25, "DT_INT4": 29,
    "DT_UINT4": 30,
}  # fmt: skip


def _data_type() -> str:
    members = dict(_DATA_TYPES)
    members |= {f"{name}_REF": number + 100 for name, number in _DATA_TYPES.items() if number}
    listed = " ".join(f"{name} = {number};" for name, number in members.items())
    return f"enum DataType {{ {listed} }}"


@lru_cache(maxsize=1)
def messages() -> SimpleNamespace:
    """The message classes, as attributes.

    Raises:
        MissingExtraError: protobuf is not installed.
    """
    with importing("TensorFlow's files need protobuf, which is not installed", "tensorflow"):
        return message_classes("graphc.tensorflow", _data_type() + SCHEMA)


def parse(name: str, data: bytes, what: str) -> Any:
    """The message of class `name` with these bytes.

    Args:
        what: the file, for the error.

    Raises:
        ModelFileError: the bytes are not such a message.
    """
    from google.protobuf.message import DecodeError

    kind = getattr(messages(), name)
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ModelFileError.here(
            f"{what} is not a {name}: it is truncated or altered, or a file of another kind",
            details=[str(error)[:200]],
        ) from None


def parse_either(name: str, data: bytes, what: str) -> Any:
    """The message of class `name` with these bytes, which may be its text form.

    Raises:
        ModelFileError: the bytes are neither.
    """
    try:
        return parse(name, data, what)
    except ModelFileError:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = ""
        if "{" not in text:
            raise
        return parse_text(name, text, what)


def parse_file(name: str, path: Path) -> tuple[Any, MappedFile | None]:
    """The message of class `name` in a file, which may have its text form. Of a large file, the
    contents of large tensors stay in the file, which is mapped: see `tensors.array_of`.

    Raises:
        ModelFileError: the file is not such a message.
        OSError: it cannot be read.
    """
    if path.stat().st_size >= LARGE_FILE:
        file = map_file(path)
        try:
            with memoryview(file) as data:
                rest = without_large_fields(data, name, _INSIDE, LARGE_ARRAY, _left_out)
            return parse(name, rest, path.name), file
        except (NotAMessage, RecursionError, ModelFileError):
            file.close()  # perhaps it is its text form
    return parse_either(name, path.read_bytes(), path.name), None


def _left_out(offset: int, size: int) -> bytes:
    return field(100001, offset) + field(100002, size)


def parse_text(name: str, text: str, what: str) -> Any:
    """The message of class `name` with this text form (.pbtxt).

    Raises:
        ModelFileError: the text is not such a message.
    """
    from google.protobuf import text_format

    kind = getattr(messages(), name)
    try:
        return text_format.Parse(text, kind(), allow_unknown_field=True)
    except (text_format.ParseError, UnicodeError, RecursionError, ValueError) as error:
        raise ModelFileError.here(
            f"{what} is not the text form of a {name}", details=[str(error)[:200]]
        ) from None
