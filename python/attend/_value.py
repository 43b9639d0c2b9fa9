"""What `attend.gaussian`, `attend.alibi` and their like have in common."""

from typing import Any

from attend import _core


class Value:
    """A function that is described by one number or array: never changed once it is made."""

    __slots__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__slots__)


def about(array: Any) -> str:
    """An array in a `repr`: its kind, dtype and shape."""
    of = type(array)
    facts = [str(getattr(array, name)) for name in ("dtype", "shape") if hasattr(array, name)]
    return f"<{' '.join([f'{of.__module__}.{of.__qualname__}', *facts])}>"


# torch.compile traces the constructors, and cannot look into _core: what is right must not need it.


def require_array(array: Any, name: str) -> None:
    """TypeError where it is no array."""
    if not hasattr(array, "__dlpack__"):
        _core.require_array(array, name)


def positive(value: Any, name: str) -> float:
    """A finite number above 0, or ValueError or TypeError."""
    return float(value) if type(value) in (int, float) and 0 < value < 1e300 else _core.positive(value, name)
