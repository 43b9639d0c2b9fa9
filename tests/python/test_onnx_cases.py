"""ONNX's own backend tests of the two operators, with --peers; they come with the package onnx."""

import numpy as np
import pytest

import attend

pytestmark = pytest.mark.peers

SLOTS = {
    "Attention": ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"),
    "RotaryEmbedding": ("X", "cos_cache", "sin_cache", "position_ids"),
}


def ordered(x):
    """16-bit numbers as integers whose neighbours differ by 1."""
    bits = x.view(np.int16).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


def assert_agrees(got, want, rtol, atol):
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.itemsize > 2:
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
        return
    # The expected outputs were rounded after every step: a unit or two in the last place are theirs.
    steps = abs(ordered(got) - ordered(want)) <= (1 if want.dtype == np.float16 else 2)
    near = np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)
    assert (steps | near).all()


def backend_cases():
    """(operator, version, attributes, inputs, outputs, tolerances) of every single-node test, by name."""
    import onnx
    from onnx.backend.test.case.node import collect_testcases

    array = lambda x: onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)
    with np.errstate(all="ignore"):
        cases = collect_testcases(None)
    for case in cases:
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].op_type not in SLOTS or graph.node[0].domain not in ("", "ai.onnx"):
            continue
        node = graph.node[0]
        opset = next(entry.version for entry in case.model.opset_import if entry.domain == node.domain)
        version = onnx.defs.get_schema(node.op_type, opset, node.domain).since_version
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        given, wanted = case.data_sets[0]
        inputs = {SLOTS[node.op_type][list(node.input).index(i.name)]: array(x) for i, x in zip(graph.input, given, strict=True)}
        outputs = {list(node.output).index(o.name): array(x) for o, x in zip(graph.output, wanted, strict=True)}
        yield case.name, node.op_type, version, attributes, inputs, outputs, case.rtol, case.atol


def test_onnxs_own_cases_pass():
    counts, failures = {}, []
    for name, kind, version, attributes, inputs, outputs, rtol, atol in backend_cases():
        counts[kind, version] = counts.get((kind, version), 0) + 1
        try:
            if kind == "Attention":
                got = attend.onnx.attention(**inputs, **attributes, opset=version)
            else:
                got = (attend.onnx.rotary_embedding(**inputs, **attributes),)
            for slot, want in outputs.items():
                assert_agrees(got[slot], want, rtol, atol)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
    assert not failures, "\n".join(failures)
    assert {kind for kind, _ in counts} == set(SLOTS) and {23, 24} <= {version for _, version in counts}
    assert sum(counts.values()) > 50
