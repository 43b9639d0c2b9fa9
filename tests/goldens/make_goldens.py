"""Makes goldens.npz: small problems with the answers that PyTorch gives in float64.

    python tests/goldens/make_goldens.py        needs torch==2.13.0

Inputs are multiples of 1/32, so that float32 and float64 hold the same numbers and the file stays small. The answer of a
problem is PyTorch's math kernel on its inputs as float64, with everything that the options exclude written out as a dense
mask; rows without any key are zeros, which PyTorch gives as well. `cases` in the file is JSON: name, options, and
whether scaled_dot_product_attention can say the same.
"""

import json
import pathlib

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HERE = pathlib.Path(__file__).parent

# name: (B, H, Hk, L, S, E, Ev), options. "mask" and "bias" are shapes, filled below.
PROBLEMS = {
    "square": ((1, 2, 2, 7, 7, 8, 8), {}),
    "rectangle": ((2, 3, 3, 5, 11, 6, 9), {}),
    "one_wide": ((1, 1, 1, 3, 4, 1, 1), {}),
    "odd_tails": ((1, 2, 1, 19, 37, 17, 5), {}),
    "many_queries": ((1, 1, 1, 70, 35, 4, 3), {}),
    "decode": ((1, 4, 1, 1, 700, 16, 4), {}),
    "decode_few": ((2, 4, 2, 3, 130, 8, 8), {"causal": True, "query_offset": "lower_right"}),
    "scale": ((1, 2, 2, 6, 9, 8, 8), {"scale": 1.75}),
    "scale_zero": ((1, 1, 1, 4, 6, 8, 8), {"scale": 0.0}),
    "scale_negative": ((1, 2, 2, 4, 6, 8, 8), {"scale": -0.5}),
    "causal": ((2, 2, 2, 9, 9, 8, 8), {"causal": True}),
    "causal_upper_left": ((1, 2, 2, 5, 12, 8, 8), {"causal": True, "query_offset": "upper_left"}),
    "causal_lower_right_empty_rows": ((1, 2, 1, 12, 5, 8, 8), {"causal": True, "query_offset": "lower_right"}),
    "causal_offset_per_batch": ((3, 2, 2, 6, 8, 8, 8), {"causal": True, "query_offset": [0, -2, 5]}),
    "window": ((1, 2, 2, 20, 20, 8, 8), {"window": [3, 1]}),
    "window_half_open": ((1, 2, 2, 9, 14, 8, 8), {"window": [None, 2], "query_offset": 3}),
    "prefix": ((2, 2, 2, 10, 10, 8, 8), {"causal": True, "prefix": [4, 0]}),
    "key_lengths": ((3, 2, 1, 4, 13, 8, 8), {"key_lengths": [13, 0, 6]}),
    "gqa": ((1, 6, 2, 8, 10, 8, 8), {}),
    "gqa_causal_window": ((2, 8, 2, 12, 12, 8, 6), {"causal": True, "window": [4, 0]}),
    "mask_dense": ((2, 2, 2, 6, 9, 8, 8), {"mask": (2, 2, 6, 9)}),
    "mask_per_key": ((2, 2, 2, 6, 9, 8, 8), {"mask": (2, 1, 1, 9)}),
    "mask_per_head": ((1, 3, 3, 6, 9, 8, 8), {"mask": (3, 1, 9)}),
    "bias_dense": ((1, 2, 2, 6, 9, 8, 8), {"bias": (1, 2, 6, 9)}),
    "bias_per_query_and_key": ((2, 2, 2, 6, 9, 8, 8), {"bias": (6, 9)}),
    "bias_with_mask_and_causal": ((1, 2, 1, 8, 8, 8, 8), {"bias": (2, 8, 8), "mask": (8, 8), "causal": True}),
}


def on_grid(rng, shape, size=1.0):
    return np.round(size * rng.standard_normal(shape) * 32) / 32


def allowed(options, B, L, S):
    """Booleans (B, 1, L, S): what causal, window, prefix and key lengths allow."""
    per_batch = lambda value: torch.as_tensor(value).reshape(-1, 1, 1).expand(B, 1, 1)
    lengths = per_batch(options.get("key_lengths", S))
    offset = options.get("query_offset", 0)
    offset = {"upper_left": torch.zeros_like(lengths), "lower_right": lengths - L}[offset] if isinstance(offset, str) else per_batch(offset)
    position, key = torch.arange(L).reshape(1, L, 1) + offset, torch.arange(S).reshape(1, 1, S)
    keep = torch.ones(B, L, S, dtype=torch.bool)
    if options.get("causal"):
        keep &= key <= position
    left, right = options.get("window", (None, None))
    if left is not None:
        keep &= key >= position - left
    if right is not None:
        keep &= key <= position + right
    if "prefix" in options:
        keep |= key < per_batch(options["prefix"])
    return (keep & (key < lengths))[:, None]


def answer(q, k, v, options, mask, bias):
    """(out, lse) in float64."""
    B, H, L, E = q.shape
    S = k.shape[2]
    q, k, v = (torch.from_numpy(x).double() for x in (q, k, v))
    keep = allowed(options, B, L, S).expand(B, H, L, S).clone()
    if mask is not None:
        keep &= torch.from_numpy(mask)
    added = torch.zeros(B, H, L, S, dtype=torch.float64)
    if bias is not None:
        added = added + torch.from_numpy(bias)
    added = added.masked_fill(~keep, -torch.inf)
    scale = options.get("scale", E**-0.5)
    with sdpa_kernel(SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale, enable_gqa=True)
    scores = scale * q @ k.repeat_interleave(H // k.shape[1], 1).transpose(-1, -2) + added
    lse = torch.logsumexp(scores, -1)
    assert not out.isnan().any() and not out[lse == -torch.inf].any()
    return out.numpy(), lse.numpy()


def main():
    arrays, cases = {}, []
    for number, (name, (sizes, options)) in enumerate(PROBLEMS.items()):
        B, H, Hk, L, S, E, Ev = sizes
        rng = np.random.default_rng([20, number])
        q, k, v = on_grid(rng, (B, H, L, E)), on_grid(rng, (B, Hk, S, E)), on_grid(rng, (B, Hk, S, Ev))
        mask = bias = None
        if "mask" in options:
            mask = rng.random(options["mask"]) < 0.6
            mask.reshape(-1, mask.shape[-1])[0] = False  # one row, or key pattern, without any key
        if "bias" in options:
            bias = on_grid(rng, options["bias"], 2.0)
            bias[rng.random(bias.shape) < 0.2] = -np.inf
        out, lse = answer(q, k, v, options, mask, bias)
        parts = {"q": q, "k": k, "v": v} | ({} if bias is None else {"bias": bias})
        parts = {part: x.astype(np.float32) for part, x in parts.items()}  # exact, whatever dtype the test reads them as
        parts |= {"out": out, "lse": lse} | ({} if mask is None else {"mask": mask})
        arrays |= {f"{name}.{part}": x for part, x in parts.items()}
        plain = {n: x for n, x in options.items() if n not in ("mask", "bias")}
        same_start = plain.get("query_offset", "upper_left") == "upper_left"
        lone = len({"mask", "bias", "causal"} & set(options)) <= 1 and not set(plain) - {"scale", "causal", "query_offset"}
        cases.append({"name": name, "options": plain, "drop_in": lone and same_start})
    text = json.dumps({"torch": torch.__version__, "cases": cases})
    np.savez_compressed(HERE / "goldens.npz", cases=np.array(text), **arrays)
    print(f"{len(cases)} cases, {(HERE / 'goldens.npz').stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
