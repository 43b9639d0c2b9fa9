"""What the project expects of each kind of work, fixed before it was measured; `docs/performance.md` shows both.

Fractions are of the limit that a case is held against, ratios are times of a peer over that of attend: at least. Seconds, and the
ratio to the same call without its option, are at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Expected:
    """What one case should reach; nothing where nothing was said."""

    of_limit: dict[str, float] = field(default_factory=dict)  # by limit: which of them a machine has decides
    over: dict[str, float] = field(default_factory=dict)  # by peer, or "fastest": its time over that of attend
    of_none: float | None = None  # at most so many times the time without the option
    seconds: float | None = None  # at most


def prefill(dtype: str, width: int, causal: bool) -> Expected:
    """L = S = 2048; causal half the work, at 0.03 less of the limit in float32."""
    wide = width >= 128
    less = 0.03 if causal else 0.0
    of_none = 0.6 if causal else None
    if dtype == "float32":
        over = {"PyTorch": 1.6 if causal else 1.2 if wide else 1.5, "fastest": 1.2}
        return Expected({"fma_f32": (0.84 if wide else 0.78) - less}, over, of_none)
    if dtype == "float64":
        return Expected({"fma_f64": 0.76 if wide else 0.68}, {"PyTorch": 1.4, "fastest": 1.4}, of_none)
    if dtype == "float16":  # at least the rate of float32
        return Expected({"fma_f32": (0.84 if wide else 0.78) - less}, {"PyTorch": 1.6, "fastest": 1.3}, of_none)
    return Expected(
        {"amx_bf16": 0.30 if wide else 0.22, "dpbf16": 0.65}, {"PyTorch": 2.5 if causal else 2.0, "fastest": 1.5}, of_none
    )


def decode(dtype: str, grouped: bool) -> Expected:
    """Cold, S = 4096: of the roofline of reading and of products."""
    fraction = 0.9 if dtype == "float32" else 0.8
    units = ("read", "fma_f32", "dpbf16", "amx_bf16")
    return Expected(dict.fromkeys(units, fraction), {"PyTorch": 2.5, "fastest": 1.3} if grouped else {"PyTorch": 1.0})


def training(dtype: str, width: int, causal: bool) -> Expected:
    """Forward and backward, over 3.5 times the forward's products; causal in at most as much of the whole's time as forward."""
    of_none = 0.6 if causal else None
    if dtype == "float32":
        return Expected({"fma_f32": 0.65 if width >= 128 else 0.60}, {"PyTorch": 1.4}, of_none)
    return Expected({}, {"PyTorch": 2.5} if dtype == "bfloat16" else {}, of_none)


def short(length: int) -> Expected:
    """Many short sequences, images as sequences, few keys."""
    return Expected({"fma_f32": 0.4 if length <= 16 else 0.55}, {"PyTorch": 2.0, "fastest": 1.3})


BOOLEAN_MASK = Expected({}, {"PyTorch": 2.0, "fastest": 1.5}, of_none=1.15)
BIAS = Expected({}, {"fastest": 1.5}, of_none=1.25)
WINDOW = Expected({}, {"PyTorch": 15.0, "FlexAttention": 1.5})
RAGGED = {"padded": Expected({}, {"PyTorch": 5.0}), "loop": Expected({}, {"PyTorch": 1.3})}
TINY = {
    "numpy": Expected({}, {"PyTorch": 3.0}),
    "torch": Expected({}, {"PyTorch": 1.0}),
    "C++": Expected(seconds=2e-6),
}
