"""Arrays of any kind as NumPy arrays and back, for entry points whose dtypes are more than those that are computed with."""

import sys
from typing import Any

import numpy as np

FLOATS = ("float64", "float32", "float16", "bfloat16")


class Operand:
    """An array of the caller's: what it is called, its values as NumPy has them, and the name of its dtype.

    NumPy alone has no bfloat16: of a torch tensor, `values` are then the bits, as int16.
    """

    __slots__ = ("array", "dtype", "name", "values")

    def __init__(self, array: Any, name: str) -> None:
        self.array, self.name = array, name
        self.values, self.dtype = _read(array, name)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def require_floats(self, *dtypes: str) -> None:
        """TypeError where the dtype is none of `dtypes`, by default of those that any operator has."""
        dtypes = dtypes or FLOATS
        if self.dtype not in dtypes:
            raise TypeError(f"{self.name}: expected {' or '.join(dtypes)}, got {self.dtype}")

    @property
    def holds_bits(self) -> bool:
        return self.dtype == "bfloat16" and self.values.dtype == np.int16

    def native(self, values: np.ndarray) -> Any:
        """`values`, which are parts of this array's, as an array of its dtype that attend reads. Nothing is copied."""
        if not self.holds_bits:
            return values
        import torch

        return torch.from_numpy(values).view(torch.bfloat16)

    def widened(self, values: np.ndarray, dtype: Any) -> np.ndarray:
        """`values`, which are parts of this array's, as numbers of a float type that can hold them."""
        if self.holds_bits:
            values = self.native(values).float().numpy()
        return values.astype(dtype, copy=False)

    def give(self, values: Any) -> Any:
        """`values`, rounded to this array's dtype, as an array of its kind. Nothing is copied where the dtype is theirs."""
        if _is_torch(self.array):
            import torch

            return torch.as_tensor(values).to(self.array.dtype)
        with np.errstate(over="ignore"):  # what float16 cannot hold becomes infinite, as everywhere
            values = values.astype(self.values.dtype, copy=False)
        if isinstance(self.array, np.ndarray) or not hasattr(self.array, "__array_namespace__"):
            return values
        return self.array.__array_namespace__().asarray(values)


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")  # whoever has a tensor has imported it
    return torch is not None and isinstance(array, torch.Tensor)


def _read(array: Any, name: str) -> tuple[np.ndarray, str]:
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask of its own, got numpy.ma.MaskedArray")
    if isinstance(array, np.ndarray):
        if not array.dtype.isnative:
            raise TypeError(f"{name}: expected elements in the machine's byte order, got {array.dtype}")
        return array, array.dtype.name
    if _is_torch(array):
        return _read_torch(array, name)
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"{name}: expected an array (of NumPy, or any with __dlpack__), got {type(array).__name__}")
    try:
        values = np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # DLPack of NumPy knows no bfloat16
        if not hasattr(array, "__array__"):
            raise ValueError(f"{name}: expected an array whose memory can be read in place, got {type(array).__name__} "
                             f"({error})") from None
        values = np.asarray(array)
    return values, values.dtype.name


def _read_torch(tensor: Any, name: str) -> tuple[np.ndarray, str]:
    if tensor.requires_grad:
        raise ValueError(f"{name}: expected a tensor that requires no gradient, got one that does; attend.torch is for those, "
                         "or call detach()")
    if tensor.device.type != "cpu":
        raise ValueError(f"{name}: expected an array in the CPU's memory, got one on {tensor.device}")
    dtype = str(tensor.dtype).removeprefix("torch.")
    try:
        import torch

        tensor = tensor.resolve_neg()
        return (tensor.view(torch.int16) if dtype == "bfloat16" else tensor).numpy(), dtype
    except (RuntimeError, TypeError) as error:  # sparse, say
        raise ValueError(f"{name}: expected a tensor that NumPy can read, got {error}") from None
