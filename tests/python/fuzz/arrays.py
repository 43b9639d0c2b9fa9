"""Arrays in memory of every form, with numbers of every kind and special values planted anywhere."""

import math

import numpy as np

NUMBERS = {
    "normal": "{rng}.standard_normal({shape})",
    "ties": "{rng}.integers(-1, 2, {shape})",
    "constant": "np.full({shape}, 0.5)",
    "large": "30 * {rng}.standard_normal({shape})",
    # No number is so small that its scaled product may count as 0, which infinities beside it would tell.
    "uneven": "np.round({rng}.standard_normal({shape}) ** 9, 30)",
    "tiny": "1e-30 * {rng}.standard_normal({shape})",
    "huge": "1e12 * {rng}.standard_normal({shape})",
}
USUAL = ("normal",) * 6 + ("ties", "constant", "large", "uneven")
ANY = USUAL * 2 + ("tiny", "huge")
FORMS = ("plain",) * 6 + ("turned", "stepped", "reversed", "apart", "repeated", "unaligned")


def text_of(shape):
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def rng(choose):
    return f"np.random.default_rng({choose.seed()})"


def numbers(choose, kinds=USUAL):
    """A function from a shape to the text of such numbers."""
    kind, source = choose.of(*kinds), rng(choose)
    return lambda shape: NUMBERS[kind].format(rng=source, shape=text_of(shape))


def add_array(choose, program, name, shape, dtype, values, plants=(), borders=()):
    """Adds array `name`: `values(shape)` in memory of some form, and some of `plants` in places near `borders`. What lies
    between the elements of a form is NaN, or true in a mask."""
    shape, form = list(shape), choose.of(*FORMS)
    form = form if math.prod(shape) and shape else "plain"
    axis = choose.below(len(shape)) if form not in ("plain", "unaligned") else 0
    whole = list(shape)
    if form == "repeated":
        shape[axis] = 1
    if form in ("plain", "repeated"):
        program.let(name, f"np.array({values(shape)}, '{dtype}')")
    else:
        program.let(name, memory(form, axis, shape, dtype))
        program.do(f"{name}[...] = {values(shape)}")
    if plants and math.prod(shape):
        for _ in range(choose.of(0, 0, 0, 0, 1, 2, 1)):
            where = ", ".join(str(place(choose, n, borders)) for n in shape) or "()"
            program.do(f"{name}[{where}] = {choose.of(*plants)}")
    if form == "repeated":
        program.let(name, f"np.broadcast_to({name}, {text_of(whole)})")


def memory(form, axis, shape, dtype):
    """The text of an array to be filled whose strides have this form along `axis`."""
    if form == "unaligned":
        size = np.dtype(dtype).itemsize
        return f"np.full({size * math.prod(shape) + 1}, 255, np.uint8)[1:].view('{dtype}').reshape({text_of(shape)})"
    fill, outer, index = "True" if dtype == "bool" else "nan", list(shape), [":"] * len(shape)
    if form == "turned":
        outer[axis], outer[-1] = outer[-1], outer[axis]
        return f"np.full({text_of(outer)}, {fill}, '{dtype}').swapaxes({axis}, -1)"
    n = shape[axis]
    outer[axis], index[axis] = {"stepped": (2 * n + 1, "1::2"), "reversed": (n, "::-1"), "apart": (n + 5, f"3:{n + 3}")}[form]
    return f"np.full({text_of(outer)}, {fill}, '{dtype}')[{', '.join(index)}]"


def place(choose, size, borders):
    """An index along an axis: anywhere on a short one, else at its ends or beside a border."""
    if size <= 9:
        return choose.below(size)
    return choose.of(0, size - 1, *(b + step for b in borders for step in (-1, 0) if 0 <= b + step < size))


def broadcastable(choose, shape):
    """A shape that broadcasts to this one: axes of 1, leading axes left out."""
    kept = [choose.of(n, n, 1) for n in shape]
    return tuple(kept[choose.below(len(kept) + 1) :] if choose.rarely(3) else kept)
