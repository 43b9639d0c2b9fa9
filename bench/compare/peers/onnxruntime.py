"""ONNX Runtime: the operators Attention of ONNX (opset 23) and GroupQueryAttention of its own domain.

Quirks: both are models of one node, bound to memory that stays. Attention knows no windows: they are dense masks.
GroupQueryAttention is causal, its last query at the last key; it takes (B, L, H · E) and a cache which its new keys are written
into, here with the numbers that stand there already. Threads are `intra_op_num_threads`.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from ..case import Case
from ..inputs import Inputs
from .peer import Call, Peer, Unsupported, first_line, require_dtype, require_moderate_weights, require_written_out

TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}
ERRORS = (Exception,)  # the runtime's own classes share no narrower one


def value(array: np.ndarray) -> onnxruntime.OrtValue:
    """Over the memory of an array."""
    if array.dtype.name == "bfloat16":
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def onnx_type(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


class Model:
    """A model of one node; its inputs are arrays by name, its outputs shapes by name."""

    def __init__(self, node, arrays: dict[str, np.ndarray], outputs: dict[str, tuple[int, ...]], dtype: str, threads: int):
        given = [helper.make_tensor_value_info(name, onnx_type(array), array.shape) for name, array in arrays.items()]
        made = [helper.make_tensor_value_info(name, TYPES[dtype], shape) for name, shape in outputs.items()]
        graph = helper.make_graph([node], "attention", given, made)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self.session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except ERRORS as error:
            raise Unsupported(first_line(error)) from error
        self.dtype = dtype

    def call(self, arrays: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> Call:
        """Over the memory of these arrays; it returns the first output."""
        binding = self.session.io_binding()
        for name, array in arrays.items():
            binding.bind_ortvalue_input(name, value(array))
        for name, array in outputs.items():
            binding.bind_ortvalue_output(name, value(array))
        first = next(iter(outputs.values()))

        def run(session=self.session, binding=binding):
            session.run_with_iobinding(binding)
            return first

        return run


def tried(calls: list[Call]) -> list[Call]:
    """The calls, if the first of them works: what a kernel refuses shows when it runs."""
    try:
        calls[0]()
    except ERRORS as error:
        raise Unsupported(first_line(error)) from error
    return calls


class OnnxRuntime(Peer):
    """The operator Attention."""

    name = "ONNX Runtime"
    version = onnxruntime.__version__

    def calls(self, inputs: Inputs) -> list[Call]:
        case = inputs.case
        require_written_out(case, "softcap")
        require_moderate_weights(case)
        dense = inputs.written_out()
        if dense is not None:  # of all its rows
            dense = np.ascontiguousarray(np.broadcast_to(dense, (*dense.shape[:-2], *case.q[2:3], case.k[2])))
        also = {} if dense is None else {"mask": dense}
        attributes = {"is_causal": int(case.causal), "scale": case.factor, "softcap": case.softcap or 0.0}
        if case.dtype == "float64":
            attributes["softmax_precision"] = TensorProto.DOUBLE
        node = helper.make_node("Attention", ["q", "k", "v", *also], ["y"], **attributes)
        sets = [{"q": inputs.q, "k": k, "v": v} | also for k, v in zip(inputs.k, inputs.v, strict=True)]
        shape = (*case.q[:3], case.v[3])
        model = Model(node, sets[0], {"y": shape}, case.dtype, self.threads)
        return tried([model.call(arrays, {"y": np.empty(shape, inputs.q.dtype)}) for arrays in sets])


def rows(array: np.ndarray) -> np.ndarray:
    """(B, L, H · E) of (B, H, L, E)."""
    batch, heads, length, width = array.shape
    return np.ascontiguousarray(array.swapaxes(1, 2)).reshape(batch, length, heads * width)


def require_group_query(case: Case) -> None:
    require_written_out(case, "softcap")
    require_dtype(case, "float32", "float16")
    other_window = case.window and (case.window[0] is None or case.window[1] != 0)
    if case.mask or case.alibi or case.relative or case.lengths or other_window:
        raise Unsupported("causal and windows only")
    if not (case.causal or case.window or case.q[2] == 1) or case.q[2] not in (1, case.k[2]):
        raise Unsupported("causal only, of one new token or of all")
    if case.v[3] != case.q[3]:
        raise Unsupported("values as wide as keys only")


class OnnxRuntimeGQA(Peer):
    """The operator GroupQueryAttention."""

    name = "ONNX Runtime GQA"
    version = onnxruntime.__version__

    def calls(self, inputs: Inputs) -> list[Call]:
        case = inputs.case
        require_group_query(case)
        require_moderate_weights(case)
        batch, heads, queries, width = case.q
        keys = case.k[2]
        attributes = {"num_heads": heads, "kv_num_heads": case.k[1], "scale": case.factor, "softcap": case.softcap or 0.0}
        if case.window:
            attributes["local_window_size"] = case.window[0] + 1  # it counts the token itself
        names = ["q", "k", "v", "past_key", "past_value", "seqlens_k", "total"]
        node = helper.make_node("GroupQueryAttention", names, ["y", "key", "value"], domain="com.microsoft", **attributes)
        lengths = {"seqlens_k": np.full(batch, keys - 1, np.int32), "total": np.array([keys], np.int32)}
        sets = []
        for k, v in zip(inputs.k, inputs.v, strict=True):
            new = (rows(array[:, :, keys - queries :]) for array in (k, v))
            sets.append(dict(zip(names, (rows(inputs.q), *new, k, v), strict=False)) | lengths)
        shapes = {"y": (batch, queries, heads * width), "key": case.k, "value": case.v}
        model = Model(node, sets[0], shapes, case.dtype, self.threads)
        calls = []
        for arrays in sets:
            y = np.empty(shapes["y"], inputs.q.dtype)
            calls.append(model.call(arrays, {"y": y, "key": arrays["past_key"], "value": arrays["past_value"]}))
        return tried(calls)

    def shaped(self, inputs: Inputs, result) -> np.ndarray:
        batch, heads, queries, width = inputs.case.q
        return result.reshape(batch, queries, heads, width).swapaxes(1, 2)
