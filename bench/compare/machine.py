"""What the machine can do, measured beside what is compared with it, and what it is, without its name."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass
from pathlib import Path

import attend
import numpy as np
from attend import _core

from .inputs import Inputs
from .peers import Peer

VALID_FROM = 0.97  # of lanes x units x 2 x clock: a peak below it was disturbed and does not count


# The limits of multiply-adds of each type, the best first, and what measures one: a type and a set, None for any.
UNITS = {"float32": ("fma_f32",), "float64": ("fma_f64",), "float16": ("fma_f32",), "bfloat16": ("amx_bf16", "dpbf16", "fma_f32")}
MEASURES = {
    "fma_f32": ("float32", None),
    "fma_f64": ("float64", None),
    "dpbf16": ("bfloat16", "avx512_bf16"),
    "amx_bf16": ("bfloat16", "amx_bf16"),
}


def unit_of(dtype: str) -> str:
    """The best of its limits that this machine has."""
    sets = attend.info()["instruction_sets"]["detected"]
    return next(unit for unit in UNITS[dtype] if MEASURES[unit][1] is None or MEASURES[unit][1] in sets)


@dataclass(frozen=True)
class Limits:
    """The limits of one moment, in flop/s and bytes/s; `fma` is NaN where the peak was disturbed."""

    unit: str
    fma: float
    read: float = math.inf
    validity: float = 0.0

    @classmethod
    def measure(cls, inputs: Inputs, threads: int) -> Limits:
        """Those that this case can be held against."""
        unit = unit_of(inputs.case.dtype)
        dtype, isa = MEASURES[unit]
        rate = _core.fma_rate(dtype, threads, isa)
        fma = rate["flops"] if rate["validity"] >= VALID_FROM else math.nan
        read = _core.read_bandwidth(threads) if inputs.case.cold else math.inf
        return cls(unit, fma, read, rate["validity"])

    def larger(self, other: Limits) -> Limits:
        """The larger of each: between two measurements the machine was at least once this fast."""
        read = max(self.read, other.read)
        return Limits(self.unit, float(np.fmax(self.fma, other.fma)), read, max(self.validity, other.validity))

    def seconds(self, inputs: Inputs) -> float:
        """The least time that one call can take."""
        arithmetic = inputs.flops / self.fma
        return max(arithmetic, inputs.case.cache_bytes / self.read) if inputs.case.cold else arithmetic

    def name(self, inputs: Inputs) -> str:
        """Which limit that is."""
        if inputs.case.cold and not inputs.flops / self.fma > inputs.case.cache_bytes / self.read:
            return "read"
        return self.unit


def processor() -> str:
    """The processor's model, as the operating system names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def measure_again(limits: dict, threads: int) -> dict:
    """The same limits at another moment, the larger of each: disturbances only lower them."""
    now = _core.measure_limits(threads)
    return {name: max(value, now[name]) if isinstance(value, float) else value for name, value in limits.items()}


def describe(threads: int, contenders: list[Peer], missing: dict[str, str]) -> dict:
    """Machine, versions, and who is not there and why, as JSON."""
    return {
        "processor": processor(),
        "threads": threads,
        "limits": _core.measure_limits(threads),
        "info": attend.info(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            **{contender.name: contender.version for contender in contenders},
        },
        "missing": missing,
    }
