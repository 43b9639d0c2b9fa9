"""OpenVINO: the operator ScaledDotProductAttention on its plugin for CPUs.

Quirks: it knows no grouped heads; one query per head is folded into the queries of its key/value head, which no mask tells apart.
Without a hint it would compute float32 in bfloat16 where the processor has that, so that the precision of the case is asked for.
Threads are `INFERENCE_NUM_THREADS`. bfloat16 crosses as 16-bit words.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import openvino
from openvino import opset13

from ..inputs import Inputs
from .peer import Call, Peer, Unsupported, as_stored, first_line, require_dtype, require_written_out

TYPES = {"float32": openvino.Type.f32, "float16": openvino.Type.f16, "bfloat16": openvino.Type.bf16}


def tensor(array: np.ndarray) -> openvino.Tensor:
    """Over the memory of an array."""
    if array.dtype.name == "bfloat16":
        return openvino.Tensor(array.view(np.uint16), openvino.Shape(array.shape), openvino.Type.bf16)
    return openvino.Tensor(array, shared_memory=True)


class OpenVINO(Peer):
    name = "OpenVINO"
    version = openvino.__version__.partition("-")[0]

    def __init__(self, threads: int):
        super().__init__(threads)
        self.core = openvino.Core()

    def calls(self, inputs: Inputs) -> list[Call]:
        case = inputs.case
        require_written_out(case)
        require_dtype(case, *TYPES)
        q = inputs.q
        if case.grouped:
            if case.q[2] != 1 or case.causal or inputs.written_out() is not None:
                raise Unsupported("no grouped heads but for one query")
            q = q.reshape(case.q[0], case.k[1], -1, case.q[3])
        dense = inputs.written_out()
        if dense is not None:
            dense = np.ascontiguousarray(dense)
        parameters = [opset13.parameter(shape, TYPES[case.dtype]) for shape in (q.shape, case.k, case.v)]
        operands = list(parameters)
        if dense is not None:
            kind = openvino.Type.boolean if dense.dtype == bool else TYPES[case.dtype]
            parameters.append(opset13.parameter(dense.shape, kind))
            operands.append(parameters[-1])
        if case.scale is not None:  # stands behind the mask, so that one has to be there
            if dense is None:
                operands.append(opset13.constant(np.zeros((), np.float32)).output(0))
            operands.append(opset13.constant(np.float32(case.scale)))
        node = opset13.scaled_dot_product_attention(*operands, causal=case.causal)
        hints = {
            "INFERENCE_NUM_THREADS": self.threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": TYPES[case.dtype],
        }
        calls = []
        try:
            model = self.core.compile_model(openvino.Model([node.output(0)], parameters), "CPU", hints)
            for k, v in zip(inputs.k, inputs.v, strict=True):
                request = model.create_infer_request()
                arrays = [q, k, v] if dense is None else [q, k, v, dense]
                for position, array in enumerate(arrays):
                    request.set_input_tensor(position, tensor(array))
                calls.append(partial(self.run, request, arrays))
            calls[0]()
        except RuntimeError as error:
            raise Unsupported(first_line(error)) from error
        return calls

    @staticmethod
    def run(request: openvino.InferRequest, kept: list[np.ndarray]) -> openvino.Tensor:
        """`kept` is the memory that the request reads: it holds none of it."""
        request.infer(share_outputs=True)
        return request.get_output_tensor(0)

    def shaped(self, inputs: Inputs, result: openvino.Tensor) -> np.ndarray:
        return as_stored(result.data, inputs.case.dtype).reshape(*inputs.case.q[:3], inputs.case.v[3])
