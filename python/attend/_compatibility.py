"""Compatibility functions that have parameters; those without are words: "dot", "cosine", "l1", "none"."""

from typing import Any, SupportsFloat

from attend._value import Value, about, positive, require_array


class gaussian(Value):
    """``f(q, k) = -|q - k|**2 / (2 * sigma**2)``, for a finite sigma above 0.

    Under softmax this is Nadaraya-Watson kernel regression: v is averaged with weights ``exp(f)``.

    >>> gaussian(2)
    gaussian(sigma=2.0)
    """

    __slots__ = ("sigma",)
    sigma: float

    def __init__(self, sigma: SupportsFloat) -> None:
        object.__setattr__(self, "sigma", positive(sigma, "sigma"))

    def __repr__(self) -> str:
        return f"gaussian(sigma={self.sigma!r})"

    def __eq__(self, other: object) -> bool:
        return self.sigma == other.sigma if type(other) is gaussian else NotImplemented

    def __hash__(self) -> int:
        return hash((gaussian, self.sigma))


class additive(Value):
    """``f(q, k) = sum_d w[d] * tanh(q[d] + k[d])`` for an array w of shape (E,), of the inputs' dtype or float32.

    The array is kept as it is and read by every call (Bahdanau et al., 2015).
    """

    __slots__ = ("w",)
    w: Any

    def __init__(self, w: Any) -> None:
        require_array(w, "additive")
        object.__setattr__(self, "w", w)

    def __repr__(self) -> str:
        return f"additive(w={about(self.w)})"
