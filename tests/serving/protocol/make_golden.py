"""Writes golden.json with the package tensorflow-serving-api, which the tests do not need."""

import json
from pathlib import Path

import numpy as np

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128 int4 uint4 float8_e4m3fn float8_e5m2"
)


def tensors() -> dict[str, str]:
    """TensorProtos of [0, 1, 1, 0], with `tensor_content` and with values, and of strings."""
    import tensorflow as tf

    found = {}
    for name in DTYPES.split():
        dtype = tf.as_dtype(name)
        array = np.array([0, 1, 1, 0]).astype(dtype.as_numpy_dtype)
        found[f"{name} array"] = hexed(tf.make_tensor_proto(array))
        if "8_" not in name and name not in ("bfloat16", "int4", "uint4"):
            found[f"{name} values"] = hexed(tf.make_tensor_proto(array.tolist(), dtype))
    found["string"] = hexed(tf.make_tensor_proto([b"a", b"\xff\x00", b""]))
    return found


def spec(message, **fields):
    message.model_spec.name = "m"
    message.model_spec.signature_name = "s"
    message.model_spec.version.value = 3
    return message


def example(**features: list[float]):
    import tensorflow as tf

    made = tf.train.Example()
    for name, values in features.items():
        made.features.feature[name].float_list.value.extend(values)
    return made


def hexed(message) -> str:
    return message.SerializeToString(deterministic=True).hex()


def main() -> None:
    import tensorflow as tf
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        inference_pb2,
        model_management_pb2,
        predict_pb2,
        prediction_log_pb2,
        regression_pb2,
    )

    predict = spec(predict_pb2.PredictRequest(output_filter=["y"]))
    predict.inputs["x"].CopyFrom(tf.make_tensor_proto(np.float32([[1, 2]])))
    response = spec(predict_pb2.PredictResponse())
    response.outputs["y"].CopyFrom(tf.make_tensor_proto([1.5, -2.0], tf.float32))
    classify = spec(classification_pb2.ClassificationRequest())
    classify.input.example_list_with_context.examples.append(example(x=[1]))
    classify.input.example_list_with_context.context.CopyFrom(example(age=[4]))
    regress = spec(regression_pb2.RegressionRequest())
    regress.input.example_list.examples.extend([example(x=[1]), example(x=[2])])
    multi = inference_pb2.MultiInferenceRequest(input=regress.input)
    spec(multi.tasks.add(method_name="tensorflow/serving/classify"))
    metadata = spec(get_model_metadata_pb2.GetModelMetadataRequest())
    metadata.metadata_field.append("signature_def")
    status = spec(get_model_status_pb2.GetModelStatusRequest())
    reload = model_management_pb2.ReloadConfigRequest()
    config = reload.config.model_config_list.config.add(name="m", base_path="/models/m")
    config.model_version_policy.specific.versions.extend([3, 4])
    config.version_labels["stable"] = 3
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.CopyFrom(predict)
    found = {
        "tensors": tensors(),
        "messages": {
            type(message).__name__: hexed(message)
            for message in (
                predict, response, classify, regress, multi, metadata, status, reload, log,
            )
        },
    }  # fmt: skip
    text = json.dumps(found, indent=1)
    Path(__file__).with_name("golden.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
