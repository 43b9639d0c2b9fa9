"""Calls: dense ones and packed ones, with the properties that are to be checked on them."""

import numpy as np
from hypothesis import strategies as st

import reference
from fuzz.arrays import ANY, USUAL, add_array, numbers
from fuzz.choices import Choices
from fuzz.options import Options, add_functions
from fuzz.packed import PACKED
from fuzz.program import Program
from fuzz.properties import DENSE
from fuzz.sizes import Sizes, draw_lengths, draw_sizes


def plants_of(dtype, normalizer):
    """Values to be planted in q, k and v. Results have to stay in range; factors below it are 0, and 0 times infinity NaN."""
    huge, tiny = "1e6" if normalizer in ("sum", "mean") else "1e30", "1e-310" if dtype == "float64" else "1e-40"
    scores = ("nan", "inf", "-inf", "1e12", "-1e12", "1e-25", "-0.0")
    return {"q": scores, "k": scores, "v": ("nan", "inf", "-inf", huge, "-" + huge, tiny, "-0.0")}


def add_inputs(choose, program, shapes, dtype, size, kinds, normalizer):
    plants = plants_of(dtype, normalizer)
    for name, shape in shapes.items():
        of_numbers = numbers(choose, USUAL if name == "v" else kinds)
        add_array(choose, program, name, shape, dtype, of_numbers, plants[name], (size.kernel.tile, size.kernel.chunk))


def kinds_of(compatibility, dtype):
    """Squares of tiny and huge numbers leave the range of float32, products with usual ones do not; float16 holds neither."""
    return ANY if compatibility in ("dot", "none") and dtype != "float16" else USUAL


def dense_call(choose):
    program = Program()
    dtype, layout = choose.of(*reference.DTYPES), choose.of("bhld", "bhld", "blhd")
    size = draw_sizes(choose, dtype)
    if layout != "bhld":
        program.option("layout", repr(layout))
    compatibility, normalizer = add_functions(choose, program, size.width, dtype)

    def shape(heads, length, width):
        if size.matrices:
            return (length, width)
        own = choose.of(size.batch, size.batch, size.batch[1:], (1,) * len(size.batch)) if size.batch else ()
        return (*own, heads, length, width) if layout == "bhld" else (*own, length, heads, width)

    shapes = {"q": shape(size.heads, size.queries, size.width), "k": shape(size.kv_heads, size.keys, size.width),
              "v": shape(size.kv_heads, size.keys, size.value_width)}
    add_inputs(choose, program, shapes, dtype, size, kinds_of(compatibility, dtype), normalizer)
    batch = np.broadcast_shapes(*(x[:-3] for x in shapes.values()))
    Options(choose, program, size, batch, dtype).all()
    stage = choose.of("biased", "scaled", "capped", None)
    program.results = ("lse", "weights", stage) if stage else ("lse",)
    program.checks = {choose.of(*DENSE), choose.of(*DENSE)}
    return program


def packed_call(choose):
    program = Program(packed=True)
    dtype = choose.of(*reference.DTYPES)
    lengths, kernel, grid = draw_lengths(choose, dtype)
    kv_heads, group = choose.of(1, 2, 3), choose.of(1, 2, 3)
    total_q, total_k = (sum(n) for n in zip(*lengths, strict=True)) if lengths else (0, 0)
    heads, widths = kv_heads * group, (choose.of(4, 1, 8, 17), choose.of(3, 1, 8, 17))
    size = Sizes((len(lengths),), heads, kv_heads, total_q, total_k, *widths, kernel, grid=grid)
    compatibility, normalizer = add_functions(choose, program, size.width, dtype)
    shapes = {"q": (total_q, heads, widths[0]), "k": (total_k, kv_heads, widths[0]), "v": (total_k, kv_heads, widths[1])}
    add_inputs(choose, program, shapes, dtype, size, kinds_of(compatibility, dtype), normalizer)
    kind = choose.of("int64", "int64", "int32")
    for name, n in (("cu_q", 0), ("cu_k", 1)):
        program.let(name, f"np.array({[0, *np.cumsum([x[n] for x in lengths]).tolist()]}, np.{kind})")
    Options(choose, program, size, size.batch, dtype, lengths).all()
    program.results = ("lse",)
    program.checks = {choose.of(*PACKED), choose.of(*PACKED)}
    return program


@st.composite
def calls(draw):
    choose = Choices(draw)
    return packed_call(choose) if choose.rarely(6) else dense_call(choose)
