"""What is measured, in the order of the table."""

from __future__ import annotations

from collections.abc import Iterator

from . import expected
from .case import Case

DOCUMENTS = (37, 113, 180, 245, 301, 333, 391, 448)  # 2048 tokens
SKEWED = tuple(round(16 * 64 ** (i / 31) ** 2) for i in range(32))  # from 16 to 1024, most of them short
SWEEP = (128, 256, 512, 1024, 2048, 4096)  # lengths of the curves of time over L
WIDTHS = {(80, 80): "E 80", (96, 96): "E 96", (192, 192): "E 192", (256, 256): "E 256", (576, 512): "E 576, Ev 512"}


def all_cases() -> Iterator[Case]:
    """Every case."""
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        for width in (64, 128):
            for causal in (False, True):
                shape = (1, 8, 2048, width)
                name = f"prefill 2048, E {width}{', causal' if causal else ''}"
                headline = dtype == "float32" or (width == 64 and not causal)
                reach = expected.prefill(dtype, width, causal)
                yield Case(name, shape, shape, dtype, causal=causal, headline=headline, expected=reach)
    yield from widths()

    shape = (1, 8, 2048, 64)
    yield Case("boolean mask 2048, E 64", shape, shape, mask="boolean", headline=True, expected=expected.BOOLEAN_MASK)
    yield Case("bias 2048, E 64", shape, shape, mask="bias", headline=True, expected=expected.BIAS)
    yield from with_options()
    yield from of_the_general_form()

    yield from of_training()
    packed = {"lengths": SKEWED, "documents": "packed"}
    for peer, reach in expected.RAGGED.items():
        shape = (1, 8, sum(SKEWED), 64)
        yield Case(f"32 packed sequences of 16 to 1024, {peer}", shape, shape, peer=peer, **packed, headline=True, expected=reach)

    shape = (1, 8, 8192, 64)
    yield Case("window 256 of 8192, E 64", shape, shape, window=(255, 0), headline=True, expected=expected.WINDOW)
    for length in (16, 64):
        shape = (64, 12, length, 64)
        yield Case(f"64 short sequences, L {length}", shape, shape, headline=True, expected=expected.short(length))
    yield Case("vision, L 197", (8, 12, 197, 64), (8, 12, 197, 64), headline=True, expected=expected.short(197))
    cross = {"q": (2, 8, 4096, 40), "k": (2, 8, 77, 40)}
    yield Case("cross attention, 77 keys, E 40", **cross, headline=True, expected=expected.short(77))
    for dtype in ("float32", "bfloat16", "float16"):
        for kv_heads in (8, 32):
            name = f"decode 4096, 32 heads, {kv_heads} key/value heads"
            reach = expected.decode(dtype, kv_heads != 32)
            yield Case(name, (1, 32, 1, 128), (1, kv_heads, 4096, 128), dtype, cold=True, headline=True, expected=reach)
    for dtype in ("float32", "bfloat16"):
        name = "decode 4096, 32 heads, 8 key/value heads, pages of 16"
        yield Case(name, (1, 32, 1, 128), (1, 8, 4096, 128), dtype, cold=True, pages=16, expected=expected.decode(dtype, True))
    for arrays, reach in expected.TINY.items():
        how = {"numpy": "", "torch": ", torch tensors", "C++": ", from C++"}[arrays]
        tiny = {"q": (1, 1, 4, 16), "k": (1, 1, 16, 16)}
        yield Case(f"tiny call, L 4, S 16, E 16{how}", **tiny, arrays=arrays, headline=True, expected=reach)

    for causal in (False, True):
        for length in SWEEP:
            shape = (1, 8, length, 64)
            yield Case(f"sweep {'causal' if causal else 'full'}, L {length}, E 64", shape, shape, causal=causal, sweep=True)


def widths() -> Iterator[Case]:
    """Widths that are no power of two, wide ones, and values narrower than keys."""
    for (width, value_width), name in WIDTHS.items():
        yield Case(f"prefill 2048, {name}", (1, 8, 2048, width), (1, 8, 2048, width), value_width=value_width)
    yield Case("decode 4096, 16 heads, E 576, Ev 512", (1, 16, 1, 576), (1, 1, 4096, 576), value_width=512, cold=True)


def of_the_general_form() -> Iterator[Case]:
    """Other functions of the weights, and regions of a grid."""
    for dtype in ("float32", "float64"):
        shape = (1, 8, 2048, 64)
        for kind in ("cosine", "gaussian", "l1", "additive", "none"):
            # Sums of 64 sizes: smaller scores are rounded within the bound, too.
            scale = 1 / 8 if kind == "l1" else None
            yield Case(f"compatibility {kind}", shape, shape, dtype, compatibility=kind, scale=scale)
        for kind in ("mean", "sum", "sigmoid", "relu2", "abs"):
            yield Case(f"normaliser {kind}", shape, shape, dtype, normalizer=kind)
    yield Case("relative table 2048, R 128", (1, 8, 2048, 64), (1, 8, 2048, 64), relative=128)
    grid = {"grid": (64, 64)}
    yield Case("neighbourhood 7x7 on 64x64, E 64", (1, 8, 4096, 64), (1, 8, 4096, 64), neighborhood=7, **grid)
    filters = {"neighborhood": 3, "relative": 1, "compatibility": "none", "normalizer": "sum", **grid}
    for width in (1, 64):  # eight filters over one image of numbers, or of vectors; no score is made of columns
        name = f"convolution 3x3 on 64x64{', vectors of 64' if width > 1 else ''}"
        yield Case(name, (1, 8, 4096, 0), (1, 1, 4096, 0), value_width=width, **filters)


def of_training() -> Iterator[Case]:
    """A result and the gradients of q, k and v."""
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        for width in (64, 128):
            for length, causal in ((512, False), (2048, False), (2048, True)):
                shape = (1 if length > 512 else 4, 8, length, width)
                name = f"forward and backward {length}, E {width}{', causal' if causal else ''}"
                headline = dtype == "float32" and width == 64
                reach = expected.training(dtype, width, causal)
                yield Case(name, shape, shape, dtype, causal=causal, backward=True, headline=headline, expected=reach)
    name, shape = "forward and backward", (1, 8, 8192, 64)
    yield Case(f"{name}, window 256 of 8192, E 64", shape, shape, window=(255, 0), backward=True)
    shape = (1, 8, 2048, 64)
    reach = expected.training("float32", 64, False)
    yield Case(f"{name} 2048, E 64, torch tensors", shape, shape, arrays="torch", backward=True, expected=reach)
    yield Case(f"{name}, segments 2048, 8 documents", shape, shape, lengths=DOCUMENTS, backward=True)
    yield Case(f"{name}, 8 key/value heads of 32", (1, 32, 1024, 64), (1, 8, 1024, 64), causal=True, backward=True)


def with_options() -> Iterator[Case]:
    """One option at a time."""
    shape, width = (1, 8, 2048, 64), "2048, E 64"
    yield Case(f"boolean mask per head {width}", shape, shape, mask="boolean", mask_axes="HLS")
    yield Case(f"bias per head {width}", shape, shape, mask="bias", mask_axes="HLS")
    yield Case(f"bias per key {width}", shape, shape, mask="bias", mask_axes="S")
    yield Case(f"ALiBi {width}", shape, shape, alibi=True)
    yield Case(f"soft cap {width}", shape, shape, softcap=30.0)
    yield Case(f"sinks {width}", shape, shape, sinks=True)
    yield Case(f"dropout 0.1, {width}", shape, shape, dropout=0.1)
    for documents in ("segments", "mask"):
        name = {"segments": "segments", "mask": "block-diagonal mask"}[documents]
        yield Case(f"{name} 2048, 8 documents", shape, shape, lengths=DOCUMENTS, documents=documents)
