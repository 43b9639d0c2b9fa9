"""Errors of ways to quantise keys and values, as docs/caches.md tells them.

    python tools/quantization_error.py examples/data/minilm_qkv.npz [decode_capture.npz]

Both files hold captures of real models: per layer q, k, v (heads, tokens, width), or `q`, `k`, `v` (layers, heads, tokens, width) of a causal one.
Beside them stand normal numbers of width 128, and the same with four columns of large keys, as big language models have. An error is the root mean square
of what the output of attention is off, over the root mean square of the output, once with keys and once with values quantised. "attend" rows are
measured through attend.KVCache; the others are computed here.
"""

import sys

import numpy as np

import attend


def to_bfloat16(x, up=False):
    """Rounded to nearest, or away from zero."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    more = np.uint32(0xFFFF) if up else np.uint32(0x7FFF) + ((bits >> 16) & 1)
    return ((bits + more) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)


def grouped(x, size, axis, quantise):
    """quantise(groups of `size` numbers along an axis, the last one possibly shorter)."""
    y = np.moveaxis(np.asarray(x, np.float32), axis, -1)
    parts = [quantise(y[..., at:at + size]) for at in range(0, y.shape[-1], size)]
    return np.moveaxis(np.concatenate(parts, -1), -1, axis)


def symmetric(most):
    def quantise(x):
        scale = to_bfloat16(np.abs(x).max(-1, keepdims=True) / most, up=True)
        return np.rint(x / np.where(scale == 0, 1, scale)) * scale
    return quantise


def with_minimum(steps):
    def quantise(x):
        low = x.min(-1, keepdims=True)
        scale = to_bfloat16((x.max(-1, keepdims=True) - low) / steps, up=True)
        return np.rint((x - low) / np.where(scale == 0, 1, scale)) * scale + low
    return quantise


def through_cache(codes):
    """What a cache holds of values, which keys are stored like: the output of queries that see one of them."""
    def quantise(x):
        cache = attend.KVCache(1, x.shape[0], x.shape[1], x.shape[2], quantized=codes)
        rows = np.asarray(x, np.float32)[None]
        cache.append(rows, rows)
        return attend.decode(np.zeros_like(rows), cache, mask=np.eye(x.shape[1], dtype=bool))[0]
    return quantise


WAYS = {"bfloat16": to_bfloat16, "attend int8": through_cache("int8"), "attend int4": through_cache("int4")}
for bits, most in ((8, 127), (4, 7)):
    for size in (16, 32, 128):
        WAYS[f"int{bits}, scale per row and {size} columns"] = lambda x, n=size, m=most: grouped(x, n, -1, symmetric(m))
    WAYS[f"int{bits}, scale and minimum per row and 32 columns"] = lambda x, m=2 * most + 1: grouped(x, 32, -1, with_minimum(m))
    WAYS[f"int{bits}, scale per column and 32 tokens"] = lambda x, m=most: grouped(x, 32, -2, symmetric(m))


def captures(paths):
    for path in paths:
        with np.load(path) as data:
            if "l0_q" in data:
                layers = [name[:-2] for name in data if name.endswith("_q")]
                yield "MiniLM, E 32", [tuple(data[f"{n}_{x}"] for x in "qkv") for n in layers], False
            else:
                yield "stories260K, E 8", list(zip(data["q"], data["k"], data["v"])), True
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((2, 512, 128)) for _ in range(3))
    yield "normal, E 128", [(1.5 * q, k, v)], False
    large = np.ones(128)
    large[[5, 37, 70, 101]] = 12
    yield "large columns, E 128", [(q / large, k * large + np.where(large > 1, 8, 0), v)], False


def attention(q, k, v, causal):
    return attend.attention(*(np.ascontiguousarray(x, np.float64) for x in (q, k, v)), causal=causal)


def main(paths):
    sets = list(captures(paths))
    print("| | " + " | ".join(f"{name}: K | V" for name, _, _ in sets) + " |")
    print("|---|" + "--:|--:|" * len(sets))
    for way, quantise in WAYS.items():
        cells = []
        for _, layers, causal in sets:
            errors = []
            for q, k, v in layers:
                exact = attention(q, k, v, causal)
                off = [attention(q, quantise(k), v, causal) - exact, attention(q, k, quantise(v), causal) - exact]
                errors.append([np.mean(x**2) / np.mean(exact**2) for x in off])
            cells += [f"{x:.1e}" for x in np.sqrt(np.mean(errors, 0))]
        print(f"| {way} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
