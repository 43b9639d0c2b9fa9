from typing import Literal, Sequence, SupportsFloat, SupportsIndex, TypedDict, overload

import jax
import numpy as np
from typing_extensions import Unpack

from attend import OutLse, additive, gaussian

__all__: list[str]

_Array = jax.Array | np.ndarray
_Integers = SupportsIndex | Sequence[int] | _Array
_Side = SupportsIndex | None
_Pair = tuple[SupportsIndex, SupportsIndex] | list[SupportsIndex]

class _Options(TypedDict, total=False):
    mask: _Array | None
    bias: _Array | None
    causal: bool
    window: tuple[_Side, _Side] | list[_Side] | None
    query_offset: _Integers | Literal["upper_left", "lower_right"] | None
    prefix: _Integers | None
    query_segments: _Array | None
    key_segments: _Array | None
    key_lengths: _Integers | None
    grid: _Pair | None
    neighborhood: SupportsIndex | _Pair | None
    dilation: SupportsIndex | _Pair
    border: Literal["clip", "shift"]
    relative: _Array | None
    scale: SupportsFloat | SupportsIndex | None
    softcap: SupportsFloat | SupportsIndex | None
    alibi: bool | _Array | None
    sinks: _Array | None
    compatibility: Literal["dot", "cosine", "l1", "none"] | gaussian | additive
    normalizer: Literal["softmax", "mean", "sum", "sigmoid", "relu2", "abs"]
    dropout_p: SupportsFloat | SupportsIndex
    seed: SupportsIndex | _Array | None
    layout: Literal["bhld", "blhd"]
    reproducible: bool
    threads: SupportsIndex | None

@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, return_lse: Literal[False] = False, **options: Unpack[_Options]
) -> jax.Array: ...
@overload
def attention(q: _Array, k: _Array, v: _Array, *, return_lse: Literal[True], **options: Unpack[_Options]) -> OutLse: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, return_lse: bool, **options: Unpack[_Options]
) -> jax.Array | OutLse: ...
