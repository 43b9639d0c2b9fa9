"""attend for PyTorch: the calls of `attend` as operators of PyTorch, with gradients and under torch.compile.

>>> import attend, torch
>>> q = torch.ones(1, 8, 16, 64, requires_grad=True)
>>> attend.torch.attention(q, q, q, causal=True).sum().backward()
>>> q.grad.shape
torch.Size([1, 8, 16, 64])

Inputs and options are those of `attend.attention`, with tensors as arrays. There are gradients of q, k and v, of bias,
relative, given slopes of alibi, sinks and arrays of the score list, and by lse where it is returned; memory grows with L and
S, never with their product. Under torch.autocast, q, k and v are cast as for PyTorch's own attention. There is no forward mode,
no second derivative and no vmap: NotImplementedError says so.
"""

from attend.torch import _operators as _operators  # registers them
from attend.torch._calls import attention, attention_varlen, scaled_dot_product_attention
from attend.torch._replace import replace_sdpa
from attend.torch._transformers import register_with_transformers

__all__ = ["attention", "attention_varlen", "register_with_transformers", "replace_sdpa", "scaled_dot_product_attention"]
