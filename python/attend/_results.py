"""What `attention` returns where more than the output was asked for: in this order, by name or by unpacking."""

from typing import Any, NamedTuple


class OutLse(NamedTuple):
    out: Any
    lse: Any


class OutWeights(NamedTuple):
    out: Any
    weights: Any


class OutLseWeights(NamedTuple):
    out: Any
    lse: Any
    weights: Any
