"""What a call returns where more than the output was asked for: in this order, by name or by unpacking."""

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


class OutScores(NamedTuple):
    out: Any
    scores: Any


class OutLseScores(NamedTuple):
    out: Any
    lse: Any
    scores: Any


class OutWeightsScores(NamedTuple):
    out: Any
    weights: Any
    scores: Any


class OutLseWeightsScores(NamedTuple):
    out: Any
    lse: Any
    weights: Any
    scores: Any
