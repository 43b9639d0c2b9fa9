"""ggml, the library of llama.cpp: ggml_flash_attn_ext.

Quirks: queries and results are float32 whatever keys and values are; masks and biases are float16, causal and windows are such
masks, too, made before the clock starts. Values of float16 are summed up in float16. What it cannot do ends the process, so that
it is refused here. Threads are those of `ggml_graph_plan`; its build for this machine is made when it is installed.
"""

from __future__ import annotations

import ctypes

import ggml
import numpy as np

from ..case import Case
from ..inputs import Inputs, aligned
from . import version_of
from .peer import Call, Peer, Unsupported, require_dtype, require_written_out

TYPES = {"float32": ggml.GGML_TYPE_F32, "float16": ggml.GGML_TYPE_F16, "bfloat16": ggml.GGML_TYPE_BF16}


class Graph:
    """One node over the memory of arrays; the result lies in `y`, (B, L, H, Ev)."""

    def __init__(self, case: Case, arrays: dict[str, np.ndarray], threads: int):
        size = 16 * ggml.ggml_tensor_overhead() + ggml.ggml_graph_overhead()
        self.context = ggml.ggml_init(ggml.ggml_init_params(mem_size=size, mem_buffer=None, no_alloc=True))
        self.kept = arrays
        batch, heads, queries, _ = case.q
        self.y = aligned((batch, queries, heads, case.v[3]), "float32")
        q, k, v = (self.tensor(arrays[name]) for name in "qkv")
        mask = self.tensor(arrays["mask"]) if "mask" in arrays else None
        node = ggml.ggml_flash_attn_ext(self.context, q, k, v, mask, case.factor, 0.0, case.softcap or 0.0)
        ggml.ggml_flash_attn_ext_set_prec(node, ggml.GGML_PREC_F32)
        node.contents.data = self.y.ctypes.data
        self.graph = ggml.ggml_new_graph(self.context)
        ggml.ggml_build_forward_expand(self.graph, node)
        self.plan = ggml.ggml_graph_plan(self.graph, threads, None)
        self.work = np.empty(max(1, self.plan.work_size), np.uint8)
        self.plan.work_data = ctypes.cast(self.work.ctypes.data, ctypes.POINTER(ctypes.c_uint8))

    def tensor(self, array: np.ndarray):
        """Over an array of rank 4; ggml counts axes from the last."""
        made = ggml.ggml_new_tensor_4d(self.context, TYPES[array.dtype.name], *reversed(array.shape))
        made.contents.data = array.ctypes.data
        return made

    def __call__(self) -> np.ndarray:
        if ggml.ggml_graph_compute(self.graph, ctypes.byref(self.plan)) != ggml.GGML_STATUS_SUCCESS:
            raise RuntimeError("ggml_graph_compute: expected success, got another status")
        return self.y

    def __del__(self):
        ggml.ggml_free(self.context)


class Ggml(Peer):
    name = "ggml"
    version = version_of("ggml-python")

    def __init__(self, threads: int):
        super().__init__(threads)
        ggml.ggml_cpu_init()

    def calls(self, inputs: Inputs) -> list[Call]:
        case = inputs.case
        require_written_out(case, "softcap")
        require_dtype(case, *TYPES)
        if case.q[3] == 0 or case.k[2] == 0:
            raise Unsupported("no empty shapes")
        bias = inputs.dense_bias(causal=True)
        if case.mask == "bias" or case.alibi or case.relative is not None:
            raise Unsupported("biases in float16 only")
        also = {}
        if bias is not None:
            also["mask"] = np.ascontiguousarray(bias.reshape((1,) * (4 - bias.ndim) + bias.shape), np.float16)
        q = np.ascontiguousarray(inputs.q, np.float32)
        sets = [{"q": q, "k": k, "v": v} | also for k, v in zip(inputs.k, inputs.v, strict=True)]
        return [Graph(case, arrays, self.threads) for arrays in sets]

    def shaped(self, inputs: Inputs, result) -> np.ndarray:
        return result.swapaxes(1, 2)
