from typing import Any, Literal, Protocol, Sequence, SupportsFloat, SupportsIndex, TypedDict, TypeVar, overload

from typing_extensions import Unpack

from attend._compatibility import additive as additive, gaussian as gaussian
from attend._results import OutLse as OutLse, OutLseWeights as OutLseWeights, OutWeights as OutWeights

__version__: str
__all__: list[str]

class _Array(Protocol):
    """A NumPy array, or anything on the CPU with `__dlpack__`."""

    def __dlpack__(self, *arguments: Any, **options: Any) -> Any: ...

_ArrayT = TypeVar("_ArrayT", bound=_Array)
_OutT = TypeVar("_OutT", bound=_Array)
_Integers = SupportsIndex | Sequence[int] | _Array
_Side = SupportsIndex | None
_Pair = tuple[SupportsIndex, SupportsIndex] | list[SupportsIndex]

class _Positions(TypedDict, total=False):
    mask: _Array | None
    bias: _Array | None
    causal: bool
    window: tuple[_Side, _Side] | list[_Side] | None
    query_offset: _Integers | Literal["upper_left", "lower_right"] | None
    prefix: _Integers | None
    key_lengths: _Integers | None
    grid: _Pair | None
    neighborhood: SupportsIndex | _Pair | None
    dilation: SupportsIndex | _Pair
    border: Literal["clip", "shift"]
    relative: _Array | None
    scale: SupportsFloat | SupportsIndex | None
    compatibility: Literal["dot", "cosine", "l1", "none"] | gaussian | additive
    normalizer: Literal["softmax", "mean", "sum", "sigmoid", "relu2", "abs"]
    layout: Literal["bhld", "blhd"]
    reproducible: bool

class _Options(_Positions, total=False):
    threads: SupportsIndex | None

class _InstructionSets(TypedDict):
    detected: list[str]
    compiled: list[str]
    available: list[str]

class _Info(TypedDict):
    version: str
    instruction_sets: _InstructionSets
    threads: int

@overload
def attention(
    q: _ArrayT, k: _Array, v: _Array, *, out: None = None, return_lse: Literal[False] = False,
    return_weights: Literal[False] = False, **options: Unpack[_Options]
) -> _ArrayT: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _OutT, return_lse: Literal[False] = False,
    return_weights: Literal[False] = False, **options: Unpack[_Options]
) -> _OutT: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: Literal[True],
    return_weights: Literal[False] = False, **options: Unpack[_Options]
) -> OutLse: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: Literal[False] = False,
    return_weights: Literal[True], **options: Unpack[_Options]
) -> OutWeights: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: Literal[True],
    return_weights: Literal[True], **options: Unpack[_Options]
) -> OutLseWeights: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: bool = False,
    return_weights: bool = False, **options: Unpack[_Options]
) -> Any: ...
def scaled_dot_product_attention(
    query: _ArrayT, key: _Array, value: _Array, attn_mask: _Array | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: SupportsFloat | SupportsIndex | None = None, enable_gqa: bool = False
) -> _ArrayT: ...
def plan(
    q_shape: Sequence[int], k_shape: Sequence[int], v_shape: Sequence[int], dtype: Any, **options: Unpack[_Positions]
) -> dict[str, Any]: ...
def info() -> _Info: ...
def set_num_threads(n: SupportsIndex) -> None: ...
