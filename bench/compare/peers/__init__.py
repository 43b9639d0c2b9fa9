"""Who is measured: one small adapter each, from the inputs of a case to calls that take no arguments.

An adapter imports what it adapts at its top, so that importing it fails where that is not installed.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from .peer import Call, Peer, Unsupported

__all__ = ["ADAPTERS", "Call", "Peer", "Unsupported", "load", "version_of"]

# By the name that --peers takes: the name in tables, the module of the adapter and its class.
ADAPTERS = {
    "torch": ("PyTorch", "pytorch", "PyTorch"),
    "torch-math": ("PyTorch math", "pytorch", "PyTorchMath"),
    "flex": ("FlexAttention", "flexattention", "FlexAttention"),
    "onnxruntime": ("ONNX Runtime", "onnxruntime", "OnnxRuntime"),
    "onnxruntime-gqa": ("ONNX Runtime GQA", "onnxruntime", "OnnxRuntimeGQA"),
    "openvino": ("OpenVINO", "openvino", "OpenVINO"),
    "jax": ("JAX", "jax", "Jax"),
    "ggml": ("ggml", "ggml", "Ggml"),
}


def version_of(distribution: str) -> str:
    """Of an installed package, as its installer recorded it."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def load(keys: list[str], threads: int) -> tuple[list[Peer], dict[str, str]]:
    """Those of these peers that are installed, and why the others are not there, by their names in tables."""
    found, missing = [], {}
    for key in keys:
        name, module, kind = ADAPTERS[key]
        try:
            found.append(getattr(import_module(f".{module}", __name__), kind)(threads))
        except ModuleNotFoundError as error:
            missing[name] = f"not installed ({error.name})"
        except (ImportError, OSError, RuntimeError) as error:  # installed, and not for this machine
            missing[name] = f"not usable: {str(error).splitlines()[0]}"
    return found, missing
