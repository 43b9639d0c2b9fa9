from typing import Any, NamedTuple, Protocol, Sequence, SupportsFloat, SupportsIndex

__all__: list[str]

class _Array(Protocol):
    """A NumPy array, or anything on the CPU with `__dlpack__`."""

    def __dlpack__(self, *arguments: Any, **options: Any) -> Any: ...

class AttentionOutputs(NamedTuple):
    Y: Any
    present_key: Any
    present_value: Any
    qk_matmul_output: Any

def attention(
    Q: _Array, K: _Array, V: _Array, attn_mask: _Array | None = None, past_key: _Array | None = None,
    past_value: _Array | None = None, nonpad_kv_seqlen: _Array | Sequence[int] | None = None, *, opset: int = 24,
    is_causal: int = 0, kv_num_heads: SupportsIndex | None = None, q_num_heads: SupportsIndex | None = None,
    qk_matmul_output_mode: int | None = 0, scale: SupportsFloat | SupportsIndex | None = None,
    softcap: SupportsFloat | SupportsIndex = 0.0, softmax_precision: int | None = None, left_window_size: int = -1,
    right_window_size: int = -1
) -> AttentionOutputs: ...
def rotary_embedding(
    X: _Array, cos_cache: _Array, sin_cache: _Array, position_ids: _Array | None = None, *, interleaved: int = 0,
    num_heads: SupportsIndex | None = None, rotary_embedding_dim: int = 0
) -> Any: ...
