"""Score functions: elements of the list `score=`, which see the scaled score first, in the list's order."""

from typing import Any, SupportsFloat

from attend._value import Value, about, positive, require_array


class soft_cap(Value):
    """``s -> cap * tanh(s / cap)``, for a finite cap above 0.

    >>> soft_cap(30)
    soft_cap(cap=30.0)
    """

    __slots__ = ("cap",)
    cap: float

    def __init__(self, cap: SupportsFloat) -> None:
        object.__setattr__(self, "cap", positive(cap, "cap"))

    def __repr__(self) -> str:
        return f"soft_cap(cap={self.cap!r})"

    def __eq__(self, other: object) -> bool:
        return self.cap == other.cap if type(other) is soft_cap else NotImplemented

    def __hash__(self) -> int:
        return hash((soft_cap, self.cap))


class alibi(Value):
    """``s -> s - slopes[h] * |i + query_offset - j|``, for an array of one slope per query head.

    By default the slopes are those of the paper: ``2**(-8 * h / H)`` for h = 1 .. H; where H is no power of two, those of the
    largest power of two below it, then every other one of twice that number of heads (Press et al., Train Short, Test Long,
    2022). The array is kept as it is and read by every call; its dtype is the inputs' or float32 (float64 is rounded to it).

    >>> alibi()
    alibi()
    """

    __slots__ = ("slopes",)
    slopes: Any

    def __init__(self, slopes: Any = None) -> None:
        if slopes is not None:
            require_array(slopes, "slopes")
        object.__setattr__(self, "slopes", slopes)

    def __repr__(self) -> str:
        return "alibi()" if self.slopes is None else f"alibi(slopes={about(self.slopes)})"


class bias(Value):
    """``s -> s + numbers``, broadcast against (..., H, L, S) by NumPy's rule, of the inputs' dtype or float32.

    -inf excludes the key, whatever follows. The array is kept as it is and read by every call.
    """

    __slots__ = ("numbers",)
    numbers: Any

    def __init__(self, numbers: Any) -> None:
        require_array(numbers, "bias")
        object.__setattr__(self, "numbers", numbers)

    def __repr__(self) -> str:
        return f"bias(numbers={about(self.numbers)})"
