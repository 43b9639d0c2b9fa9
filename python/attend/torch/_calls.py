"""The functions of `attend.torch`: the short path of calls that nobody records, and the operators for all others."""

import inspect

import torch
from torch import Tensor, _C
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

import attend
from attend import _results
from attend._names import in_words_of
from attend.torch._arguments import OPTIONS, arguments_of, flag, seed_tensor, tensor, word
from attend.torch._operators import DENSE, PACKED

_SIMPLE = frozenset((Tensor, type(None), bool, int, float, str, tuple, list))
_RESULTS = {  # lse, weights, scores
    (True, False, False): _results.OutLse, (False, True, False): _results.OutWeights, (False, False, True): _results.OutScores,
    (True, True, False): _results.OutLseWeights, (True, False, True): _results.OutLseScores,
    (False, True, True): _results.OutWeightsScores, (True, True, True): _results.OutLseWeightsScores,
}


def attention(q, k, v, **options):
    """`attend.attention` with gradients: its inputs, options and results, as tensors.

    q is (..., H, L, E), k (..., Hk, S, E), v (..., Hk, S, Ev); the result is (..., H, L, Ev), or a named tuple of what was asked for.
    Options that are arrays are tensors here. There are gradients of q, k, v, bias, relative, slopes of alibi, sinks and arrays of
    score; they have shape and dtype of what they belong to. lse may be used in a loss.

    seed: an integer, or an int64 tensor of shape (). By default it is drawn from PyTorch's generator, which torch.manual_seed sets,
        and the backward pass drops the same weights.
    return_weights, return_scores: only where no gradient is required.

    Under torch.autocast q, k and v are cast, but float64 ones; so is what stands beside them in the other half type.

    Raises ValueError and TypeError as `attend.attention` does, NotImplementedError for dual tensors, gradients of gradients and
    vmap.
    """
    if _takes_short_path((q, k, v), options):
        return attend.attention(q, k, v, **_seeded(options))
    return _through_operator(DENSE, torch.ops.attend.attention.default, (q, k, v), (), options)


def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k=None, *, block_table=None, **options):
    """`attend.attention_varlen` with gradients: packed sequences of unequal length, without padding.

    q is (total_q, H, E), k (total_k, Hk, E), v (total_k, Hk, Ev); the result is (total_q, H, Ev), and lse (total_q, H). Gradients,
    seeds and casts are as in `attention`.

    block_table: only where no gradient is required.

    Raises as `attention` does.
    """
    given = {name: x for name, x in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k), ("block_table", block_table))
             if x is not None}
    if _takes_short_path((q, k, v), options | given):
        return attend.attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, block_table=block_table, **_seeded(options))
    for name, x in given.items():
        tensor(name, x)
    return _through_operator(PACKED, torch.ops.attend.attention_varlen.default, (q, k, v),
                             (cu_seqlens_q, cu_seqlens_k, block_table), options)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention, computed by attend, with gradients.

    query is (..., H, L, E), key (..., Hk, S, E), value (..., Hk, S, Ev); the result is (..., H, L, Ev). Parameters mean what they
    mean for PyTorch: attn_mask is boolean, True = attend, or numbers that are added; is_causal is from the upper left, and not beside
    attn_mask; without enable_gqa, query and key have as many heads. Dropout takes its seed from PyTorch's generator.

    attn_mask has a gradient, too, where it is of numbers; they have query's dtype or are float32. What is excluded never influences a
    row, and rows without any key are 0. Raises as `attention` does.
    """
    if not dropout_p and _takes_short_path((query, key, value), {"attn_mask": attn_mask, "scale": scale}):
        return attend.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
    options = {"scale": scale, "dropout_p": dropout_p}
    for name, x in (("query", query), ("key", key), ("value", value)):
        tensor(name, x)
    if attn_mask is not None:
        options["mask" if tensor("attn_mask", attn_mask).dtype == torch.bool else "bias"] = attn_mask
    if flag("is_causal", is_causal):
        if attn_mask is not None:
            raise ValueError("is_causal: expected False beside attn_mask (attend.torch.attention takes causal and mask together), "
                             "got True")
        options |= {"causal": True, "query_offset": "upper_left"}
    if not flag("enable_gqa", enable_gqa) and query.dim() > 2 and key.dim() > 2 and query.shape[-3] != key.shape[-3]:
        raise ValueError(f"enable_gqa: expected True where query and key differ in heads ({query.shape[-3]} and {key.shape[-3]}), "
                         "got False")
    if is_dynamo_compiling():
        return attention(query, key, value, **options)
    try:
        return attention(query, key, value, **options)
    except (TypeError, ValueError) as error:
        raise in_words_of(_WORDS, error) from None


_WORDS = {"q": "query", "k": "key", "v": "value", "mask": "attn_mask", "bias": "attn_mask"}


# --- Which way a call takes -----------------------------------------------------------------------------------------------


def _is_plain(x):
    """Whether a tensor is the CPU's and says nothing about gradients."""
    return type(x) is Tensor and x.is_cpu and not x.requires_grad


def _takes_short_path(inputs, options):
    """Whether nobody is to learn of this call: no gradient, graph, transform, mode or cast. Then attend may read the tensors itself."""
    if is_dynamo_compiling():
        return False
    for x in inputs:
        if not _is_plain(x):
            return False
    for name, value in options.items():
        if type(value) not in _SIMPLE or type(value) is Tensor and not _is_plain(value) or name == "out":
            return False
    return not (_C._len_torch_dispatch_stack() or _C._len_torch_function_stack() or torch.is_autocast_enabled("cpu")
                or forward_ad._current_level >= 0 or _C._are_functorch_transforms_active() or _C._get_tracing_state())


def _drawn_seed():
    return torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu")


def _seeded(options):
    """Options of the short path, in which a seed is an integer."""
    seed = options.get("seed")
    if isinstance(seed, Tensor):
        return options | {"seed": seed_tensor(seed).item() % 2**64}
    if seed is None and options.get("dropout_p"):
        return options | {"seed": _drawn_seed().item()}
    return options


def _through_operator(family, operator, inputs, packed, options):
    for name, x in zip(family.inputs, inputs):
        tensor(name, x)
    asked = []
    for name in family.results:
        given = options.pop(name, None)
        if name == "return_scores":
            asked.append(None if given is None else word(name, given))
        else:
            asked.append(given is not None and flag(name, given))
    for name in options:
        if name not in OPTIONS or family is PACKED and name in ("mask", "bias", "layout"):
            raise TypeError(f"{family.name}() got an unexpected keyword argument {name!r}")
    arguments = arguments_of(options)
    if arguments["dropout_p"] and arguments["seed"] is None:
        arguments["seed"] = _drawn_seed()
    results = operator(*inputs, *packed, *arguments.values(), *asked)
    if len(results) == 1:
        return results[0]
    names = tuple(bool(x) for x in asked)
    return _RESULTS[names + (False,) * (3 - len(names))](*results)


def _signature_of(function):
    signature = inspect.signature(function)
    return signature.replace(parameters=[x for name, x in signature.parameters.items() if name != "out"])


attention.__signature__ = _signature_of(attend.attention)
attention_varlen.__signature__ = _signature_of(attend.attention_varlen)
