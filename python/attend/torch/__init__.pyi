from contextlib import AbstractContextManager, ContextDecorator
from typing import Literal, Sequence, SupportsFloat, SupportsIndex, TypedDict, overload

from torch import Tensor
from torch.nn.attention.bias import CausalBias
from typing_extensions import Unpack

from attend import OutLse, OutLseScores, OutLseWeights, OutLseWeightsScores, OutScores, OutWeights, OutWeightsScores
from attend import additive, alibi, bias, gaussian, soft_cap

__all__: list[str]

_Integers = SupportsIndex | Sequence[int] | Tensor
_Side = SupportsIndex | None
_Pair = tuple[SupportsIndex, SupportsIndex] | list[SupportsIndex]
_Step = soft_cap | alibi | bias
_Stage = Literal["scaled", "capped", "biased"]

class _PackedOptions(TypedDict, total=False):
    block_table: Tensor | None
    causal: bool
    window: tuple[_Side, _Side] | list[_Side] | None
    query_offset: _Integers | Literal["upper_left", "lower_right"] | None
    prefix: _Integers | None
    query_segments: Tensor | None
    key_segments: Tensor | None
    key_lengths: _Integers | None
    grid: _Pair | None
    neighborhood: SupportsIndex | _Pair | None
    dilation: SupportsIndex | _Pair
    border: Literal["clip", "shift"]
    relative: Tensor | None
    scale: SupportsFloat | SupportsIndex | None
    softcap: SupportsFloat | SupportsIndex | None
    alibi: bool | Tensor | None
    sinks: Tensor | None
    score: _Step | Sequence[_Step] | None
    compatibility: Literal["dot", "cosine", "l1", "none"] | gaussian | additive
    normalizer: Literal["softmax", "mean", "sum", "sigmoid", "relu2", "abs"]
    dropout_p: SupportsFloat | SupportsIndex
    seed: SupportsIndex | Tensor | None
    reproducible: bool
    threads: SupportsIndex | None

class _Options(_PackedOptions, total=False):
    mask: Tensor | None
    bias: Tensor | None
    layout: Literal["bhld", "blhd"]

@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[False] = False, return_weights: Literal[False] = False,
    return_scores: None = None, **options: Unpack[_Options]
) -> Tensor: ...
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[True], return_weights: Literal[False] = False,
    return_scores: None = None, **options: Unpack[_Options]
) -> OutLse: ...
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, return_lse: bool = False, return_weights: bool = False,
    return_scores: _Stage | None = None, **options: Unpack[_Options]
) -> (
    Tensor | OutLse | OutWeights | OutScores | OutLseWeights | OutLseScores | OutWeightsScores | OutLseWeightsScores
): ...
@overload
def attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None = None, *,
    return_lse: Literal[False] = False, **options: Unpack[_PackedOptions]
) -> Tensor: ...
@overload
def attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None = None, *, return_lse: Literal[True],
    **options: Unpack[_PackedOptions]
) -> OutLse: ...
@overload
def attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None = None, *, return_lse: bool = False,
    **options: Unpack[_PackedOptions]
) -> Tensor | OutLse: ...
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | CausalBias | None = None,
    dropout_p: SupportsFloat | SupportsIndex = 0.0, is_causal: bool = False,
    scale: SupportsFloat | SupportsIndex | None = None, enable_gqa: bool = False
) -> Tensor: ...

class _Replacement(AbstractContextManager[None], ContextDecorator): ...

def replace_sdpa() -> _Replacement: ...
def register_with_transformers() -> None: ...
