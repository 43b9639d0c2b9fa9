"""Options of a call: every one of the contract, with values around the borders of tiles and chunks."""

import math

from fuzz.arrays import USUAL, add_array, broadcastable, numbers, rng, text_of

COMPATIBILITIES = ("dot",) * 7 + ("cosine", "l1", "none", "gaussian", "additive")
NORMALIZERS = ("softmax",) * 7 + ("mean", "sum", "sigmoid", "relu2", "abs")


def add_functions(choose, program, width, dtype):
    """Compatibility function and normaliser."""
    kind, normalizer = choose.of(*COMPATIBILITIES), choose.of(*NORMALIZERS)
    if kind == "gaussian":
        program.option("compatibility", f"attend.gaussian({choose.of(2.0, 0.5, 30.0)})")
    elif kind == "additive":
        add_array(choose, program, "w", (width,), choose.of(dtype, "float32"), numbers(choose))
        program.option("compatibility", "attend.additive(w)")
    elif kind != "dot":
        program.option("compatibility", repr(kind))
    if normalizer != "softmax":
        program.option("normalizer", repr(normalizer))
    return kind, normalizer


class Options:
    """Adds the options of one call to its program. `lengths` are the (queries, keys) of packed sequences."""

    def __init__(self, choose, program, size, batch, dtype, lengths=None):
        self.choose, self.program, self.size, self.batch, self.dtype = choose, program, size, batch, dtype
        self.lengths = lengths
        self.full = (1,) * (1 - len(batch)) + batch + (size.heads, size.queries, size.keys)
        self.tile, self.chunk = size.kernel.tile, size.kernel.chunk
        self.compares_positions = False

    def set(self, name, value):
        self.program.option(name, repr(value))

    def given(self, name, otherwise=None):
        return self.program.options.get(name, otherwise)

    def array(self, name, *arguments, **more):
        add_array(self.choose, self.program, name, *arguments, **more)

    def all(self):
        choose = self.choose
        if self.size.grid:
            self.set("grid", self.size.grid)
        self.structure()
        if self.lengths is None and choose.rarely(4):
            self.mask()
        self.scores()
        if choose.rarely(5):
            self.set("dropout_p", choose.of(0.5, 0.1, 0.9, 1.0, 2**-32))
            self.set("seed", choose.of(0, 1, 2**64 - 1, 123456789012345))
        self.query_offset()
        if choose.rarely(4):
            self.set("reproducible", True)
        if choose.rarely(3):
            self.set("threads", choose.of(1, 2, 3))

    # --- Which keys a query may see -------------------------------------------------------------------------------------

    def per_batch(self, name, *values, highest=None):
        """One integer, or one per batch or packed sequence; `highest` of each sequence."""
        choose = self.choose
        if not self.batch or choose.of(True, False):
            value = choose.of(*values)
            self.set(name, value if highest is None else min(value, *highest, value))
            return
        count, kind = math.prod(self.batch), choose.of("int64", "int64", "int32")
        kind = "int64" if any(abs(x) >= 2**31 for x in values) else kind
        if count > 9:
            self.program.let(name, f"{rng(choose)}.choice({list(values)}, {text_of(self.batch)}).astype(np.{kind})")
        else:
            own = [choose.of(*values) for _ in range(count)]
            own = own if highest is None else [min(a, b) for a, b in zip(own, highest, strict=True)]
            self.program.let(name, f"np.array({own}, np.{kind}).reshape({text_of(self.batch)})")
        self.program.option(name, name)

    def structure(self):
        choose, S, tile, chunk = self.choose, self.size.keys, self.tile, self.chunk
        if choose.rarely(3):
            self.set("causal", True)
        if choose.rarely(4):
            sides = (None, 0, tile, tile + 1, chunk, S, 5, 2**62, chunk + tile)
            self.set("window", (choose.of(*sides), choose.of(*sides)))
        self.compares_positions = bool(self.given("causal")) or self.given("window", (None, None)) != (None, None)
        if self.compares_positions and choose.rarely(3):
            self.per_batch("prefix", 1, 3, tile, chunk + 1, 0, S, 2**62)
        if choose.rarely(5):
            counts = [n for n in (S, S - 1, S - 5, tile, tile + 1, chunk, chunk + 1, S // 2, 1, 0) if 0 <= n <= S]
            self.per_batch("key_lengths", *counts, highest=self.lengths and [keys for _, keys in self.lengths])
        if choose.rarely(5):
            self.segments()
        if self.size.grid and choose.of(True, False):
            self.neighborhood()

    def segments(self):
        choose, own = self.choose, () if self.lengths is not None else self.choose.of((), (), self.batch)
        kind, count = choose.of("sorted", "sorted", "mixed", "negative"), choose.of(2, 1, 3)
        for name, n in (("query_segments", self.size.queries), ("key_segments", self.size.keys)):
            shape = text_of((*own, n))
            if kind == "sorted":
                text = f"np.broadcast_to(np.arange({n}) * {count} // {max(n, 1)}, {shape})"
            else:
                text = f"{rng(choose)}.integers({-1 if kind == 'negative' else 0}, {count}, {shape})"
            self.program.let(name, f"{text}.astype('{choose.of('int64', 'int64', 'int32', 'int8')}')")
            self.program.option(name, name)

    def neighborhood(self):
        choose, grid = self.choose, self.size.grid
        border, dilation = choose.of("clip", "shift"), choose.of((1, 1), (2, 2), (1, 2))
        fits = lambda n, step: [k for k in (3, 1, 5, 7) if border == "clip" or k <= max(1, n // step)]
        self.set("neighborhood", tuple(choose.of(*fits(n, step)) for n, step in zip(grid, dilation, strict=True)))
        if dilation != (1, 1):
            self.set("dilation", dilation)
        if border != "clip":
            self.set("border", border)

    def mask(self):
        choose, shape = self.choose, broadcastable(self.choose, self.full)
        density, source, runs = choose.of(0.5, 0.9, 0.1, 0.99), rng(choose), choose.rarely(3)

        def values(shape):
            if not runs or not shape or shape[-1] < 2:
                return f"{source}.random({text_of(shape)}) < {density}"
            of_runs = text_of((*shape[:-1], shape[-1] // 97 + 1))  # whole tiles without a key, and whole tiles with all
            return f"({source}.random({of_runs}) < {density}).repeat(97, -1)[..., :{shape[-1]}]"

        self.array("mask", shape, "bool", values)
        self.program.option("mask", "mask")

    # --- What scores are ------------------------------------------------------------------------------------------------

    def scores(self):
        choose, softmax = self.choose, self.given("normalizer", "softmax") == "softmax"
        if choose.rarely(5):
            self.set("scale", choose.of(1.0, -0.7, 0.0, 3, 1e-3, 20.0))
        if choose.rarely(5):
            self.score_list()
        if choose.rarely(5):
            self.set("softcap", choose.of(5.0, 0.5, 30, 1e-3, 1e6))
        if self.lengths is None and choose.rarely(4):
            self.bias("bias")
            self.program.option("bias", "bias")
        if choose.rarely(5):
            self.relative()
        if choose.rarely(4) and not any(kind == "alibi" for kind, _ in self.given("score", ())):
            self.compares_positions = True
            if choose.of(True, False):
                self.set("alibi", True)
            else:
                self.slopes("alibi")
                self.program.option("alibi", "alibi")
        if choose.rarely(4) and softmax:
            plants = ("inf", "-inf", "nan", "40", "-1e20")
            self.array("sinks", (self.size.heads,), choose.of(self.dtype, "float32"), numbers(choose), plants)
            self.program.option("sinks", "sinks")

    def bias(self, name):
        choose, dtype = self.choose, self.choose.of(self.dtype, "float32")
        of_numbers, density, source = numbers(choose), choose.of(0, 0, 0.1, 0.6), rng(choose)
        values = of_numbers
        if density:
            values = lambda shape: f"np.where({source}.random({text_of(shape)}) < {density}, -inf, {of_numbers(shape)})"
        plants = ("nan", "inf", "-inf", "-1e20")
        if name == "bias" and self.given("normalizer") not in ("sum", "mean"):  # whose results would leave the range
            plants += (f"ml_dtypes.finfo('{dtype}').min",)
        self.array(name, broadcastable(choose, self.full), dtype, values, plants, (self.tile, self.chunk))

    def slopes(self, name):
        source, dtype = rng(self.choose), self.choose.of(self.dtype, "float32")
        self.array(name, (self.size.heads,), dtype, lambda shape: f"{source}.uniform(-0.1, 1, {text_of(shape)})")

    def relative(self):
        choose, grid = self.choose, self.size.grid
        reach = lambda: 2 * choose.of(1, 0, 5, self.tile, 9) + 1
        shape = (choose.of(1, self.size.heads), reach()) + ((reach(),) if grid else ())
        self.array("relative", shape, choose.of(self.dtype, "float32"), numbers(choose), ("-inf", "nan", "inf"))
        self.program.option("relative", "relative")
        self.compares_positions |= grid is None

    def score_list(self):
        choose, texts, values = self.choose, [], []
        kinds = ["soft_cap", "alibi"] + ["bias"] * (self.lengths is None)
        for n in range(choose.of(1, 2, 3)):
            kind = choose.of(*kinds)
            if kind == "soft_cap":
                value = choose.of(5.0, 0.5, 30.0)
                text = repr(value)
            elif kind == "bias":
                text = f"bias_{n}"
                self.bias(text)
                value = self.program.names[text]
            else:
                kinds.remove("alibi")  # it may stand in a call once
                self.compares_positions, text, value = True, "", None
                if choose.of(True, False):
                    text = f"slopes_{n}"
                    self.slopes(text)
                    value = self.program.names[text]
            texts.append(f"attend.{kind}({text})")
            values.append((kind, value))
        self.program.option("score", f"[{', '.join(texts)}]", values)

    # --- Where queries stand --------------------------------------------------------------------------------------------

    def query_offset(self):
        """Where it is needed, and sometimes where it is not."""
        choose, L, S = self.choose, self.size.queries, self.size.keys
        if not (self.compares_positions and L != S and self.lengths is None) and not choose.rarely(4):
            return
        form = choose.of("lower_right", "lower_right", "lower_right", "numbers", "numbers", "upper_left")
        if form != "numbers":
            self.set("query_offset", form)
            return
        far = () if "alibi" in str(self.program.texts) else (2**40, -(2**61))  # no score keeps a distance so large
        self.per_batch("query_offset", S - L, S - L, S - L + 3, S // 2, S, 0, -2, self.tile - 1, 1, -L, *far)
