"""Caches of keys and values for decoding."""

from typing import Any, Literal, Sequence, SupportsFloat, SupportsIndex

from attend import _core
from attend._names import dtype_name

_Integers = SupportsIndex | Sequence[int] | Any
_Codes = Literal["int8", "int4"] | None
_Quantized = _Codes | tuple[_Codes, _Codes]


class KVCache(_core.kv_cache):
    """Keys and values of earlier tokens, one contiguous cache for a batch of sequences.

    >>> import attend, numpy as np
    >>> cache = attend.KVCache(1, 2, 100, 8)
    >>> rows = np.ones((1, 2, 5, 8), np.float32)
    >>> cache.append(rows, rows)
    >>> attend.decode(np.ones((1, 4, 1, 8), np.float32), cache).shape
    (1, 4, 1, 8)

    batch, kv_heads: of every append. capacity: tokens per sequence.
    dim, value_dim: E of the keys and Ev of the values, which is E by default.
    dtype: float32, float64, float16 or bfloat16, as a name, a NumPy dtype or a torch dtype.
    window: makes it a ring, which keeps the newest `capacity` tokens, at least `window`: a query sees the `window` newest keys up to
        its own position. Up to ``capacity - window + 1`` tokens may be appended before their queries are decoded.
    rotary_base: turns keys as they are appended, and queries as they are decoded, by their positions (rotary embedding): pair m of n dimensions by
        ``position / rotary_base**(2 * m / n)``. None: they stay as they are.
    rotary_interleaved: pairs are (0, 1), (2, 3), ...; by default (0, n/2), (1, n/2 + 1), ...
    rotary_dim: n, an even number of the first columns; the default is all.
    quantized: "int8" or "int4": how keys and values are stored, or a pair of how keys and how values are, of which None keeps the dtype; not beside
        float64. Of every 32 columns of a row, an int8 is at most 0.4 % of the largest magnitude off, an int4 3.4 % of
        ``largest - smallest + abs(smallest) / 128``. Where one of them is not finite, or the range of an int4, all become NaN.

    A refused call, ValueError or TypeError, leaves a cache as it was. A cache is used by one thread at a time.
    """

    def __init__(self, batch: SupportsIndex, kv_heads: SupportsIndex, capacity: SupportsIndex, dim: SupportsIndex, *,
                 value_dim: SupportsIndex | None = None, dtype: Any = "float32", window: SupportsIndex | None = None,
                 rotary_base: SupportsFloat | SupportsIndex | None = None, rotary_interleaved: bool = False,
                 rotary_dim: SupportsIndex | None = None, quantized: _Quantized = None) -> None:
        super().__init__(batch, kv_heads, capacity, dim, value_dim, dtype_name(dtype), window, rotary_base, rotary_interleaved,
                         rotary_dim, quantized)

    def append(self, k: Any, v: Any, lengths: _Integers | None = None) -> None:
        """Adds tokens: k (batch, kv_heads, n, E), v (batch, kv_heads, n, Ev), of the cache's dtype.

        lengths: how many of the n new tokens each sequence takes, one integer or one per sequence; the default is all.
        """
        super().append(k, v, lengths)

    @property
    def lengths(self) -> Any:
        """Tokens of every sequence, int64 (batch,); of a ring, tokens that it was ever given."""
        import numpy

        return numpy.array(super().lengths(), numpy.int64)

    def truncate(self, lengths: _Integers) -> None:
        """Forgets all but the first `lengths` tokens, one integer or one per sequence."""
        super().truncate(lengths)

    def reset(self) -> None:
        """Forgets everything."""
        super().reset()


class PagedKVCache(_core.paged_kv_cache):
    """Keys and values of many sequences in one pool of pages; sequences that fork share pages until one of them writes.

    >>> import attend, numpy as np
    >>> cache = attend.PagedKVCache(16, 4, 2, 8)
    >>> rows = np.ones((2, 5, 8), np.float32)
    >>> one = cache.new_sequence()
    >>> cache.append(one, rows, rows)
    >>> two = cache.fork(one)
    >>> attend.decode(np.ones((2, 4, 1, 8), np.float32), cache, sequences=[one, two]).shape
    (2, 4, 1, 8)

    num_pages, page_size: pages of so many tokens, for all sequences together.
    kv_heads, dim, value_dim, dtype, rotary_base, rotary_interleaved, rotary_dim, quantized: as in `KVCache`.

    A sequence is a number, which is not used again. A refused call, ValueError or TypeError, leaves a cache as it was. A cache is used by one
    thread at a time.
    """

    def __init__(self, num_pages: SupportsIndex, page_size: SupportsIndex, kv_heads: SupportsIndex, dim: SupportsIndex, *,
                 value_dim: SupportsIndex | None = None, dtype: Any = "float32",
                 rotary_base: SupportsFloat | SupportsIndex | None = None, rotary_interleaved: bool = False,
                 rotary_dim: SupportsIndex | None = None, quantized: _Quantized = None) -> None:
        super().__init__(num_pages, page_size, kv_heads, dim, value_dim, dtype_name(dtype), rotary_base, rotary_interleaved,
                         rotary_dim, quantized)

    def new_sequence(self) -> int:
        """An empty sequence."""
        return super().new_sequence()

    def fork(self, sequence: SupportsIndex) -> int:
        """A sequence with the same tokens."""
        return super().fork(sequence)

    def free(self, sequence: SupportsIndex) -> None:
        """Gives a sequence's pages back, but for those that others have."""
        super().free(sequence)

    def append(self, sequence: SupportsIndex, k: Any, v: Any) -> None:
        """Adds tokens: k (kv_heads, n, E), v (kv_heads, n, Ev), of the cache's dtype; all, or none where pages do not suffice."""
        super().append(sequence, k, v)

    def truncate(self, sequence: SupportsIndex, length: SupportsIndex) -> None:
        """Forgets all but the first `length` tokens."""
        super().truncate(sequence, length)

    def length(self, sequence: SupportsIndex) -> int:
        """Tokens of a sequence."""
        return super().length(sequence)

    def pages(self, sequence: SupportsIndex) -> list[int]:
        """Numbers of the pages that a sequence has, in order."""
        return super().pages(sequence)

    @property
    def free_pages(self) -> int:
        """Pages that no sequence has."""
        return super().free_pages()
