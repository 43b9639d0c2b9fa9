"""Stored answers of PyTorch in float64; ../goldens/make_goldens.py made them."""

import json
import pathlib

import numpy as np
import pytest

import attend
from reference import DTYPES, assert_close

FILE = np.load(pathlib.Path(__file__).parent.parent / "goldens" / "goldens.npz")
CASES = json.loads(str(FILE["cases"]))["cases"]


def stored(case, dtype):
    read = lambda part: FILE[f"{case['name']}.{part}"]
    q, k, v = (read(part).astype(dtype) for part in "qkv")
    options = dict(case["options"])
    if f"{case['name']}.mask" in FILE:
        options["mask"] = read("mask")
    if f"{case['name']}.bias" in FILE:
        options["bias"] = read("bias").astype(dtype)
    return (q, k, v), options, read("out"), read("lse")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_attention_agrees_with_the_stored_answer(case, dtype):
    arrays, options, out, lse = stored(case, dtype)
    result = attend.attention(*arrays, return_lse=True, **options)
    assert_close(result.out, out, abs(arrays[2]).max())
    assert_close(result.lse, lse, max(1.0, abs(lse[np.isfinite(lse)]).max(initial=0)), times=2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [case for case in CASES if case["drop_in"]], ids=lambda case: case["name"])
def test_the_drop_in_agrees_with_the_stored_answer(case, dtype):
    arrays, options, out, _ = stored(case, dtype)
    mask = options.get("mask", options.get("bias"))
    y = attend.scaled_dot_product_attention(*arrays, attn_mask=mask, is_causal=options.get("causal", False), scale=options.get("scale"),
                                            enable_gqa=arrays[0].shape[1] != arrays[1].shape[1])
    assert_close(y, out, abs(arrays[2]).max())
