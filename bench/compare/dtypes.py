"""Element types by name. NumPy has no bfloat16 of its own: it is that of ml_dtypes."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

NAMES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}  # and how tables write them
BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
# The largest error that is allowed, times the largest |v| or sum of |w v|.
BOUNDS = {"float32": 2e-6, "float64": 1e-12, "bfloat16": 8e-3, "float16": 1e-3}


def is_half(name: str) -> bool:
    return BYTES[name] == 2


def can_make(name: str) -> bool:
    """Whether NumPy arrays of this type can be made here."""
    return name != "bfloat16" or find_spec("ml_dtypes") is not None


def numpy_dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
