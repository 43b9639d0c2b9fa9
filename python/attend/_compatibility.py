"""Compatibility functions that have parameters; those without are words: "dot", "cosine", "l1", "none"."""

from typing import Any, SupportsFloat

from attend import _core


class _Function:
    """A compatibility function with one parameter: never changed once it is made."""

    __slots__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__slots__)


class gaussian(_Function):
    """``f(q, k) = -|q - k|**2 / (2 * sigma**2)``, for a finite sigma above 0.

    Under softmax this is Nadaraya-Watson kernel regression: v is averaged with weights ``exp(f)``.

    >>> gaussian(2)
    gaussian(sigma=2.0)
    """

    __slots__ = ("sigma",)
    sigma: float

    def __init__(self, sigma: SupportsFloat) -> None:
        object.__setattr__(self, "sigma", _core.positive(sigma, "sigma"))

    def __repr__(self) -> str:
        return f"gaussian(sigma={self.sigma!r})"

    def __eq__(self, other: object) -> bool:
        return self.sigma == other.sigma if type(other) is gaussian else NotImplemented

    def __hash__(self) -> int:
        return hash((gaussian, self.sigma))


class additive(_Function):
    """``f(q, k) = sum_d w[d] * tanh(q[d] + k[d])`` for an array w of shape (E,), of the inputs' dtype or float32.

    The array is kept as it is and read by every call (Bahdanau et al., 2015).
    """

    __slots__ = ("w",)
    w: Any

    def __init__(self, w: Any) -> None:
        _core.require_array(w, "additive")
        object.__setattr__(self, "w", w)

    def __repr__(self) -> str:
        of = type(self.w)
        about = [str(getattr(self.w, name)) for name in ("dtype", "shape") if hasattr(self.w, name)]
        return f"additive(w=<{' '.join([f'{of.__module__}.{of.__qualname__}', *about])}>)"
