from typing import Any, Iterable, Literal, Protocol, Sequence, SupportsFloat, SupportsIndex, TypedDict, TypeVar, overload

from typing_extensions import Unpack

from attend import jax as jax, onnx as onnx, torch as torch
from attend._cache import KVCache as KVCache, PagedKVCache as PagedKVCache
from attend._compatibility import additive as additive, gaussian as gaussian
from attend._results import (
    OutLse as OutLse, OutLseScores as OutLseScores, OutLseWeights as OutLseWeights, OutLseWeightsScores as OutLseWeightsScores,
    OutScores as OutScores, OutWeights as OutWeights, OutWeightsScores as OutWeightsScores,
)
from attend._score import alibi as alibi, bias as bias, soft_cap as soft_cap

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

_Step = soft_cap | alibi | bias
_Stage = Literal["scaled", "capped", "biased"]

class _Everywhere(TypedDict, total=False):
    """What every call takes, one over a cache among them."""

    window: tuple[_Side, _Side] | list[_Side] | None
    prefix: _Integers | None
    relative: _Array | None
    scale: SupportsFloat | SupportsIndex | None
    softcap: SupportsFloat | SupportsIndex | None
    alibi: bool | _Array | None
    sinks: _Array | None
    score: _Step | Sequence[_Step] | None
    compatibility: Literal["dot", "cosine", "l1", "none"] | gaussian | additive
    normalizer: Literal["softmax", "mean", "sum", "sigmoid", "relu2", "abs"]
    reproducible: bool

class _Common(_Everywhere, total=False):
    """What a call takes that is given its keys."""

    causal: bool
    query_offset: _Integers | Literal["upper_left", "lower_right"] | None
    query_segments: _Array | None
    key_segments: _Array | None
    key_lengths: _Integers | None
    grid: _Pair | None
    neighborhood: SupportsIndex | _Pair | None
    dilation: SupportsIndex | _Pair
    border: Literal["clip", "shift"]
    dropout_p: SupportsFloat | SupportsIndex
    seed: SupportsIndex | None

class _Planned(_Common, total=False):
    mask: _Array | None
    bias: _Array | None
    layout: Literal["bhld", "blhd"]

class _Options(_Planned, total=False):
    threads: SupportsIndex | None

class _PackedOptions(_Common, total=False):
    block_table: _Array | None
    threads: SupportsIndex | None

class _PackedBackwardOptions(_Common, total=False):
    threads: SupportsIndex | None

class _DecodeOptions(_Everywhere, total=False):
    sequences: Sequence[int] | None
    mask: _Array | None
    bias: _Array | None
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
    return_weights: Literal[False] = False, return_scores: None = None, **options: Unpack[_Options]
) -> _ArrayT: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _OutT, return_lse: Literal[False] = False,
    return_weights: Literal[False] = False, return_scores: None = None, **options: Unpack[_Options]
) -> _OutT: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: Literal[True],
    return_weights: Literal[False] = False, return_scores: None = None, **options: Unpack[_Options]
) -> OutLse: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: Literal[False] = False,
    return_weights: Literal[True], return_scores: None = None, **options: Unpack[_Options]
) -> OutWeights: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: Literal[True],
    return_weights: Literal[True], return_scores: None = None, **options: Unpack[_Options]
) -> OutLseWeights: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: Literal[False] = False,
    return_weights: Literal[False] = False, return_scores: _Stage, **options: Unpack[_Options]
) -> OutScores: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: Literal[True],
    return_weights: Literal[False] = False, return_scores: _Stage, **options: Unpack[_Options]
) -> OutLseScores: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: Literal[False] = False,
    return_weights: Literal[True], return_scores: _Stage, **options: Unpack[_Options]
) -> OutWeightsScores: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: Literal[True],
    return_weights: Literal[True], return_scores: _Stage, **options: Unpack[_Options]
) -> OutLseWeightsScores: ...
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, out: _Array | None = None, return_lse: bool = False,
    return_weights: bool = False, return_scores: _Stage | None = None, **options: Unpack[_Options]
) -> Any: ...
@overload
def attention_varlen(
    q: _ArrayT, k: _Array, v: _Array, cu_seqlens_q: _Array, cu_seqlens_k: _Array | None = None, *, out: None = None,
    return_lse: Literal[False] = False, **options: Unpack[_PackedOptions]
) -> _ArrayT: ...
@overload
def attention_varlen(
    q: _Array, k: _Array, v: _Array, cu_seqlens_q: _Array, cu_seqlens_k: _Array | None = None, *, out: _OutT,
    return_lse: Literal[False] = False, **options: Unpack[_PackedOptions]
) -> _OutT: ...
@overload
def attention_varlen(
    q: _Array, k: _Array, v: _Array, cu_seqlens_q: _Array, cu_seqlens_k: _Array | None = None, *, out: _Array | None = None,
    return_lse: Literal[True], **options: Unpack[_PackedOptions]
) -> OutLse: ...
@overload
def attention_varlen(
    q: _Array, k: _Array, v: _Array, cu_seqlens_q: _Array, cu_seqlens_k: _Array | None = None, *, out: _Array | None = None,
    return_lse: bool = False, **options: Unpack[_PackedOptions]
) -> Any: ...
def attention_backward(
    dout: _Array, q: _Array, k: _Array, v: _Array, out: _Array, lse: _Array | None, *, dlse: _Array | None = None,
    wanted: Sequence[str] | set[str] | None = None, **options: Unpack[_Options]
) -> dict[str, Any]: ...
def attention_varlen_backward(
    dout: _Array, q: _Array, k: _Array, v: _Array, out: _Array, lse: _Array | None, cu_seqlens_q: _Array, cu_seqlens_k: _Array,
    *, dlse: _Array | None = None, wanted: Sequence[str] | set[str] | None = None, **options: Unpack[_PackedBackwardOptions]
) -> dict[str, Any]: ...
@overload
def decode(
    q: _ArrayT, cache: KVCache | PagedKVCache, *, out: None = None, return_lse: Literal[False] = False,
    return_weights: Literal[False] = False, return_scores: None = None, **options: Unpack[_DecodeOptions]
) -> _ArrayT: ...
@overload
def decode(
    q: _Array, cache: KVCache | PagedKVCache, *, out: _Array | None = None, return_lse: Literal[True],
    return_weights: Literal[False] = False, return_scores: None = None, **options: Unpack[_DecodeOptions]
) -> OutLse: ...
@overload
def decode(
    q: _Array, cache: KVCache | PagedKVCache, *, out: _Array | None = None, return_lse: bool = False, return_weights: bool = False,
    return_scores: _Stage | None = None, **options: Unpack[_DecodeOptions]
) -> Any: ...
def merge(outs: Iterable[_Array], lses: Iterable[_Array]) -> OutLse: ...
def scaled_dot_product_attention(
    query: _ArrayT, key: _Array, value: _Array, attn_mask: _Array | None = None,
    dropout_p: SupportsFloat | SupportsIndex = 0.0,
    is_causal: bool = False, scale: SupportsFloat | SupportsIndex | None = None, enable_gqa: bool = False
) -> _ArrayT: ...
def plan(
    q_shape: Sequence[int], k_shape: Sequence[int], v_shape: Sequence[int], dtype: Any, **options: Unpack[_Planned]
) -> dict[str, Any]: ...
def info() -> _Info: ...
def set_num_threads(n: SupportsIndex) -> None: ...
