"""PyTorch's own attention, replaced for a while."""

import contextlib
import functools
import threading

import torch
from torch import Tensor

from attend.torch._calls import scaled_dot_product_attention

_theirs = torch.nn.functional.scaled_dot_product_attention
_lock = threading.Lock()
_open, _had_fast_path = 0, True


@functools.wraps(scaled_dot_product_attention)
def _ours(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    for x in (query, key, value):
        if isinstance(x, Tensor) and x.device.type != "cpu":
            return _theirs(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _set(function, fast_path):
    torch.nn.functional.scaled_dot_product_attention = torch._C._nn.scaled_dot_product_attention = function
    torch.backends.mha.set_fastpath_enabled(fast_path)


@contextlib.contextmanager
def replace_sdpa():
    """Inside, torch.nn.functional.scaled_dot_product_attention is attend's: as a context manager, or as a decorator.

    >>> with attend.torch.replace_sdpa():
    ...     model(x)

    It reaches whoever looks the function up when calling it, in torch.nn.functional or torch._C._nn: models written with it,
    nn.TransformerEncoderLayer and its like, and nn.MultiheadAttention with need_weights=False (with weights it multiplies
    matrices by itself). The fused path that these modules take in eval() without gradients is switched off inside. It does not
    reach who kept the function under a name of their own (`from torch.nn.functional import ...`), nor graphs that were exported.

    Tensors on other devices go to PyTorch's own. On the CPU, what attend refuses is an error and goes nowhere else: a silent
    change would be worse.

    The replacement is the process's: other threads see it, too, from the first that enters until the last that leaves. It may be
    nested, and ends where an exception leaves it, too.
    """
    global _open, _had_fast_path
    with _lock:
        if not _open:
            _had_fast_path = torch.backends.mha.get_fastpath_enabled()
            _set(_ours, False)
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if not _open:
                _set(_theirs, _had_fast_path)
