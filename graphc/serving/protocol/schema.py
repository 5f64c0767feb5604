"""The schema of TensorFlow Serving's protocol: field names and numbers as in its .proto files.

The package name is our own, so that TensorFlow in the same process is not disturbed: only numbers
and types are on the wire. Some types differ where the bytes are the same:

- an Example is `bytes`: `graphc.data.records` reads it;
- `PackedTensor` is a TensorProto whose packed numbers are `bytes`, which NumPy writes at once.
"""

from graphc.store.proto_schema import tensor_proto

_OTHERS = """
enum ModelType { MODEL_TYPE_UNSPECIFIED = 0; TENSORFLOW = 1; OTHER = 2; }

message Int64Value { int64 value = 1; }
message StringValue { string value = 1; }
message BoolValue { bool value = 1; }
message Any { string type_url = 1; bytes value = 2; }

message PackedTensor {
  int32 dtype = 1; TensorShapeProto tensor_shape = 2;
  bytes float_val = 5; bytes double_val = 6; repeated int32 int_val = 7;
  repeated bytes string_val = 8; bytes scomplex_val = 9; repeated int64 int64_val = 10;
  bytes bool_val = 11; bytes dcomplex_val = 12; repeated int32 half_val = 13;
  repeated uint32 uint32_val = 16; repeated uint64 uint64_val = 17; bytes float8_val = 18;
}
message TensorInfo { string name = 1; int32 dtype = 2; TensorShapeProto tensor_shape = 3; }
message SignatureDef {
  map<string, TensorInfo> inputs = 1; map<string, TensorInfo> outputs = 2; string method_name = 3;
}
message SignatureDefMap { map<string, SignatureDef> signature_def = 1; }

message ModelSpec {
  string name = 1; string signature_name = 3;
  oneof version_choice { Int64Value version = 2; string version_label = 4; }
}
message PredictRequest {
  ModelSpec model_spec = 1; map<string, TensorProto> inputs = 2; repeated string output_filter = 3;
}
message PackedRequest {
  ModelSpec model_spec = 1; map<string, PackedTensor> inputs = 2; repeated string output_filter = 3;
}
message PredictResponse { map<string, TensorProto> outputs = 1; ModelSpec model_spec = 2; }
message PackedResponse { map<string, PackedTensor> outputs = 1; ModelSpec model_spec = 2; }

message ExampleList { repeated bytes examples = 1; }
message ExampleListWithContext { repeated bytes examples = 1; bytes context = 2; }
message Input {
  oneof kind {
    ExampleList example_list = 1; ExampleListWithContext example_list_with_context = 2;
  }
}
message Class { string label = 1; float score = 2; }
message Classifications { repeated Class classes = 1; }
message ClassificationResult { repeated Classifications classifications = 1; }
message ClassificationRequest { ModelSpec model_spec = 1; Input input = 2; }
message ClassificationResponse { ClassificationResult result = 1; ModelSpec model_spec = 2; }
message Regression { float value = 1; }
message RegressionResult { repeated Regression regressions = 1; }
message RegressionRequest { ModelSpec model_spec = 1; Input input = 2; }
message RegressionResponse { RegressionResult result = 1; ModelSpec model_spec = 2; }
message InferenceTask { ModelSpec model_spec = 1; string method_name = 2; }
message InferenceResult {
  ModelSpec model_spec = 1;
  oneof result {
    ClassificationResult classification_result = 2; RegressionResult regression_result = 3;
  }
}
message MultiInferenceRequest { repeated InferenceTask tasks = 1; Input input = 2; }
message MultiInferenceResponse { repeated InferenceResult results = 1; }

message GetModelMetadataRequest { ModelSpec model_spec = 1; repeated string metadata_field = 2; }
message GetModelMetadataResponse { ModelSpec model_spec = 1; map<string, Any> metadata = 2; }
message StatusProto { int32 error_code = 1; string error_message = 2; }
message ModelVersionStatus { int64 version = 1; int32 state = 2; StatusProto status = 3; }
message GetModelStatusRequest { ModelSpec model_spec = 1; }
message GetModelStatusResponse { repeated ModelVersionStatus model_version_status = 1; }

message Latest { uint32 num_versions = 1; }
message All { }
message Specific { repeated int64 versions = 1; }
message ServableVersionPolicy {
  oneof policy_choice { Latest latest = 100; All all = 101; Specific specific = 102; }
}
message ModelConfig {
  string name = 1; string base_path = 2; ModelType model_type = 3; string model_platform = 4;
  ServableVersionPolicy model_version_policy = 7; map<string, int64> version_labels = 8;
  map<string, double> traffic = 1000;
}
message ModelConfigList { repeated ModelConfig config = 1; }
message ModelServerConfig { ModelConfigList model_config_list = 1; }
message ReloadConfigRequest { ModelServerConfig config = 1; repeated string metric_names = 2; }
message Metric { string name = 1; int64 int64_value_increase = 2; }
message ReloadConfigResponse { StatusProto status = 1; repeated Metric metric = 2; }

message CreateSessionRequest { ModelSpec model_spec = 1; oneof start { int64 seed = 2; } }
message CreateSessionResponse {
  string session_id = 1; ModelSpec model_spec = 2; double idle_seconds = 3; double max_seconds = 4;
}
message SessionSpec { string model = 1; string session_id = 2; string signature_name = 3; }
message SessionRequest {
  SessionSpec session = 1; map<string, TensorProto> inputs = 2; repeated string output_filter = 3;
  int64 steps = 4; map<string, string> feedback = 5; map<string, TensorProto> stop = 6;
  int64 number = 7;
}
message PackedSessionRequest {
  SessionSpec session = 1; map<string, PackedTensor> inputs = 2; repeated string output_filter = 3;
  int64 steps = 4; map<string, string> feedback = 5; map<string, PackedTensor> stop = 6;
  int64 number = 7;
}
message CloseSessionRequest { SessionSpec session = 1; }
message CloseSessionResponse { }

message HealthCheckRequest { string service = 1; }
message HealthCheckResponse { int32 status = 1; }

message Sizes { repeated int64 sizes = 1; }
message BatchingParameters {
  Int64Value max_batch_size = 1; Int64Value batch_timeout_micros = 2;
  Int64Value num_batch_threads = 3; Int64Value max_enqueued_batches = 4;
  StringValue thread_pool_name = 5; repeated int64 allowed_batch_sizes = 6;
  bool pad_variable_length_inputs = 7; BoolValue enable_large_batch_splitting = 8;
  map<string, Sizes> buckets = 1000;
}
message PrometheusConfig { bool enable = 1; string path = 2; }
message MonitoringConfig { PrometheusConfig prometheus_config = 1; }
message SSLConfig {
  string server_key = 1; string server_cert = 2; string custom_ca = 3; bool client_verify = 4;
}

message PredictLog { PredictRequest request = 1; PredictResponse response = 2; }
message ClassifyLog { ClassificationRequest request = 1; ClassificationResponse response = 2; }
message RegressLog { RegressionRequest request = 1; RegressionResponse response = 2; }
message MultiInferenceLog {
  MultiInferenceRequest request = 1; MultiInferenceResponse response = 2;
}
message PredictionLog {
  oneof log_type {
    ClassifyLog classify_log = 2; RegressLog regress_log = 3; MultiInferenceLog
    multi_inference_log = 4; bytes session_run_log = 5; PredictLog predict_log = 6;
    bytes predict_streamed_log = 7;
  }
}
"""
SCHEMA = tensor_proto("int32") + _OTHERS
"""The schema, in the part of the language of .proto files that `graphc.store.proto_schema` reads.
`traffic` of a ModelConfig is our addition: label or version -> percent of the requests that name
neither. So are `buckets` of BatchingParameters (open size -> the values that it is padded to) and
the messages of sessions; `steps`, `feedback` and `stop` are for Generate only."""
