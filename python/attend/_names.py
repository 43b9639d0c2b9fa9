"""Names of dtypes."""

from typing import Any


def dtype_name(dtype: Any) -> str:
    """The name of a dtype given as text, as a NumPy dtype or scalar type, or as a torch dtype."""
    import numpy

    text = str(dtype)
    if text.startswith("torch."):
        return text[len("torch."):]
    try:
        return text if dtype is None else numpy.dtype(dtype).name  # NumPy takes None for float64
    except (TypeError, ValueError, SyntaxError):
        return text.encode("ascii", "backslashreplace").decode()  # refused by its name
