"""A call as the Python that makes it: the lines that are run are the lines that a failure prints."""

import math
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

import attend

def score_list(steps):
    """attend's score list for [(kind, value), ...]; the value of paper's slopes is None."""
    return [getattr(attend, kind)() if value is None else getattr(attend, kind)(value) for kind, value in steps]


@dataclass
class Call:
    """Arrays and options of one call; `score` is [(kind, value), ...], `packed` the boundaries of queries and keys."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    options: dict
    packed: tuple | None = None
    place: dict = field(default_factory=dict)  # what the definition has to know of a sequence that stands in a batch

    def heads_first(self, x):
        """An array in the call's layout as (..., H, L, width), and back."""
        return x.swapaxes(-2, -3) if x.ndim > 2 and self.options.get("layout") == "blhd" else x

    @property
    def batch(self):
        return np.broadcast_shapes(*(x.shape[:-3] for x in (self.q, self.k, self.v)))

    @property
    def lengths(self):
        return self.heads_first(self.q).shape[-2], self.heads_first(self.k).shape[-2]

    @property
    def heads(self):
        return 1 if self.q.ndim == 2 else self.heads_first(self.q).shape[-3]

    @property
    def kv_heads(self):
        return 1 if self.k.ndim == 2 else self.k.shape[1] if self.packed else self.heads_first(self.k).shape[-3]

    def run(self, **more):
        options = {**self.options, **more}
        if "score" in options:
            options["score"] = score_list(options["score"])
        if self.packed is None:
            return attend.attention(self.q, self.k, self.v, **options)
        return attend.attention_varlen(self.q, self.k, self.v, *self.packed, **options)

    def results(self, names=("lse", "weights"), **more):
        """{"out": ..., ...}: everything that this call can give of `names`."""
        able = set(names) if self.packed is None else set(names) & {"lse"}
        if self.options.get("normalizer", "softmax") != "softmax":
            able -= {"lse"}
        stage = next((name for name in ("scaled", "capped", "biased") if name in able), None)
        asked = {"return_" + name: True for name in ("lse", "weights") if name in able}
        if stage:
            asked["return_scores"] = stage
        given = self.run(**asked, **more)
        if not asked:
            return {"out": given}
        names = ["out"] + [name for name in ("lse", "weights") if name in able] + [stage] * (stage is not None)
        assert len(given) == len(names)
        return dict(zip(names, given, strict=True))

    def but(self, *without, **other):
        """The same call with other arrays or options, or without some."""
        arrays = {name: other.pop(name, getattr(self, name)) for name in ("q", "k", "v")}
        options = {name: value for name, value in self.options.items() if name not in without}
        return Call(**arrays, options={**options, **other}, packed=self.packed, place=self.place)

    def changed(self, **functions):
        """The same call with functions applied to some options where they are given; "bias" and "slopes" to those of its score
        list as well."""
        inside = {"bias": functions.get("bias"), "alibi": functions.pop("slopes", None)}
        of_step = lambda kind, x: x if x is None or not inside.get(kind) else inside[kind](x)
        options = {name: functions[name](value) if name in functions else value for name, value in self.options.items()}
        if "score" in options:
            options["score"] = [(kind, of_step(kind, x)) for kind, x in options["score"]]
        return self.but(**options)


@dataclass
class Program:
    """Lines of Python that make the arrays of a call, their values, and the call's options as text and as values."""

    lines: list = field(default_factory=lambda: ["import ml_dtypes, numpy as np, attend", "nan, inf = np.nan, np.inf"])
    names: dict = field(default_factory=lambda: {"ml_dtypes": ml_dtypes, "np": np, "attend": attend, "nan": math.nan, "inf": math.inf})
    options: dict = field(default_factory=dict)
    texts: dict = field(default_factory=dict)
    packed: bool = False
    checks: set = field(default_factory=set)
    results: tuple = ("lse", "weights")

    def let(self, name, text):
        """Runs `name = text`."""
        with np.errstate(over="ignore"):  # what float16 cannot hold is infinite
            self.names[name] = eval(text, self.names)
        self.lines.append(f"{name} = {text}")
        return self.names[name]

    def do(self, line):
        with np.errstate(over="ignore"):
            exec(line, self.names)
        self.lines.append(line)

    def option(self, name, text, value=None):
        """An option of the call; `value` where the definition is given something else than the text's value."""
        self.texts[name] = text
        self.options[name] = eval(text, self.names) if value is None else value

    def call(self):
        cut = (self.names["cu_q"], self.names["cu_k"]) if self.packed else None
        return Call(self.names["q"], self.names["k"], self.names["v"], dict(self.options), cut)

    def text(self):
        arguments = ["q", "k", "v"] + ["cu_q", "cu_k"] * self.packed + [f"{name}={text}" for name, text in self.texts.items()]
        name = "attention_varlen" if self.packed else "attention"
        return "\n".join([*self.lines, f"y = attend.{name}({', '.join(arguments)})"])
