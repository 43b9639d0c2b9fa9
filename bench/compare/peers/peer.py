"""What an adapter is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from .. import dtypes
from ..case import Case
from ..inputs import Inputs

Call = Callable[[], object]

LARGEST_WEIGHTS = 1 << 30  # bytes of L × S weights that a peer is asked to hold; more would be a measurement of paging


class Unsupported(Exception):
    """The peer has no call for this case; the message says why."""


class Peer(ABC):
    """One way to compute attention. Arrays are handed over without copies where the peer allows, before the clock starts."""

    name: str
    version: str
    # Its results may be wrong by so many times the bound of attend, by type: most peers round halves at more places. Their errors
    # are recorded.
    slack: dict[str, float] = {"bfloat16": 4.0, "float16": 4.0}

    differentiates = False  # whether its calls give gradients where the case asks for them: (out, dq, dk, dv)

    def __init__(self, threads: int):
        self.threads = threads

    @abstractmethod
    def calls(self, inputs: Inputs) -> list[Call]:
        """One call for each cache of the case; when a call returns, its result is there. Asked within `running`. Raises
        Unsupported."""

    def meant(self, inputs: Inputs) -> Inputs:
        """What its results are compared with."""
        return inputs

    def shaped(self, inputs: Inputs, result) -> np.ndarray:
        """A result, or a gradient, as (B, H, L, Ev)."""
        return np.asarray(result)

    def running(self) -> AbstractContextManager:
        """What its calls have to run in; entered before the clock starts."""
        return nullcontext()

    def kernel(self, inputs: Inputs, calls: list[Call]) -> str | None:
        """Which of several kernels runs these calls, where the peer says so."""
        return None

    def allowed(self, case: Case) -> float:
        """The largest error of a result that counts as right, in units of the bound."""
        return self.slack.get(case.dtype, 1.0)


def require_softmax_of_dots(case: Case) -> None:
    if (case.compatibility, case.normalizer) != ("dot", "softmax"):
        raise Unsupported("softmax of dot products only")


def require_written_out(case: Case, *also: str) -> None:
    """For a peer that takes a dense mask or bias, causal, and the options named in `also`."""
    require_softmax_of_dots(case)
    options = {"softcap": "soft cap", "sinks": "sinks", "dropout": "dropout", "neighborhood": "neighbourhood"}
    for option, name in options.items():
        if getattr(case, option) and option not in also:
            raise Unsupported(f"no {name}")
    if case.documents == "packed":
        raise Unsupported("no packed sequences")


def require_moderate_weights(case: Case) -> None:
    """For a peer that holds the L × S weights."""
    if case.weights_bytes > LARGEST_WEIGHTS:
        raise Unsupported(f"it holds L × S weights, {case.weights_bytes / 2**30:.1f} GiB here")


def require_dtype(case: Case, *names: str) -> None:
    if case.dtype not in names:
        raise Unsupported(f"no {case.dtype}")


def first_line(error: Exception) -> str:
    """What an error says, short enough for a table of reasons."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def as_stored(array: np.ndarray, dtype: str) -> np.ndarray:
    """A bfloat16 array that another library wrote as 16-bit words, as what it is."""
    return array.view(dtypes.numpy_dtype(dtype)) if dtype == "bfloat16" else array
