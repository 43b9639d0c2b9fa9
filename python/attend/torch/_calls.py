"""The functions of `attend.torch`: the short path of calls that nobody records, and the operators for all others."""

import inspect

import torch
from torch import Tensor, _C
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter

import attend
from attend import _results
from attend._names import in_words_of
from attend.torch._arguments import OPTIONS, arguments_of, flag, seed_tensor, tensor, word
from attend.torch._autograd import DENSE, PACKED, DirectCall, is_watched, recorded

_RESULTS = {  # lse, weights, scores
    (True, False, False): _results.OutLse, (False, True, False): _results.OutWeights, (False, False, True): _results.OutScores,
    (True, True, False): _results.OutLseWeights, (True, False, True): _results.OutLseScores,
    (False, True, True): _results.OutWeightsScores, (True, True, True): _results.OutLseWeightsScores,
}


def attention(q, k, v, **options):
    """`attend.attention` with gradients: its inputs, options and results, as tensors.

    q is (..., H, L, E), k (..., Hk, S, E), v (..., Hk, S, Ev); the result is (..., H, L, Ev), or a named tuple of what was asked
    for. Options that are arrays are tensors here. There are gradients of q, k, v, bias, relative, slopes of alibi, sinks and arrays of
    score; they have shape and dtype of what they belong to. lse may be used in a loss.

    seed: an integer, or an int64 tensor of shape (). By default it is drawn from PyTorch's generator, which torch.manual_seed sets,
        and the backward pass drops the same weights.
    return_weights, return_scores: only where no gradient is required.

    Under torch.autocast q, k and v are cast, but float64 ones; so is what stands beside them in the other half type.

    Raises ValueError and TypeError as `attend.attention` does, NotImplementedError for dual tensors, gradients of gradients and
    vmap.
    """
    return _call(DENSE, {"q": q, "k": k, "v": v}, options)


def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k=None, *, block_table=None, **options):
    """`attend.attention_varlen` with gradients: packed sequences of unequal length, without padding.

    q is (total_q, H, E), k (total_k, Hk, E), v (total_k, Hk, Ev); the result is (total_q, H, Ev), and lse (total_q, H). Gradients,
    seeds and casts are as in `attention`.

    block_table: only where no gradient is required.

    Raises as `attention` does.
    """
    return _call(PACKED, {"q": q, "k": k, "v": v, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
                          "block_table": block_table}, options)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention, computed by attend, with gradients.

    query is (..., H, L, E), key (..., Hk, S, E), value (..., Hk, S, Ev); the result is (..., H, L, Ev). Parameters mean what they
    mean for PyTorch: attn_mask is boolean, True = attend, numbers that are
    added, or a CausalBias; is_causal is from the upper left, and not beside
    attn_mask; without enable_gqa, query and key have as many heads. Dropout takes its seed from PyTorch's generator.

    attn_mask has a gradient, too, where it is of numbers; they have query's dtype or are float32. What is excluded never
    influences a row, and rows without any key are 0. Raises as `attention` does.
    """
    unseen = not (dropout_p or is_dynamo_compiling() or is_watched()) and type(scale) in _SIMPLE
    if unseen and _requires_grad((query, key, value, attn_mask)) is False:
        return attend.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
    options = {"scale": scale, "dropout_p": dropout_p}
    for name, x in (("query", query), ("key", key), ("value", value)):
        tensor(name, x)
    if corner := _corner_of(attn_mask):
        options |= {"causal": True, "query_offset": corner}
    elif attn_mask is not None:
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


def _corner_of(attn_mask):
    """Where a torch.nn.attention.bias.CausalBias is causal from; None of any other mask."""
    if attn_mask is None or type(attn_mask) is Tensor:
        return None
    from torch.nn.attention.bias import CausalBias, CausalVariant  # takes as long as all of torch

    if not isinstance(attn_mask, CausalBias):
        return None
    return "upper_left" if attn_mask.variant == CausalVariant.UPPER_LEFT else "lower_right"


_WORDS = {"q": "query", "k": "key", "v": "value", "mask": "attn_mask", "bias": "attn_mask"}


# --- Which way a call takes -----------------------------------------------------------------------------------------------

_NUMBERS = frozenset(("scale", "softcap", "dropout_p"))
_SIMPLE = frozenset((type(None), bool, int, float, str, attend.soft_cap, attend.gaussian))


def _requires_grad(value):
    """Whether an argument requires a gradient; None where only the operator's checks know what to do with it."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        return value.requires_grad if value.is_cpu and not value.is_neg() else None
    if kind in _SIMPLE:
        return False
    if kind is tuple or kind is list:
        found = False
        for x in value:
            one = _requires_grad(x)
            if one is None:
                return None
            found = found or one
        return found
    if kind is attend.alibi:
        return _requires_grad(value.slopes)
    if kind is attend.bias:
        return _requires_grad(value.numbers)
    return _requires_grad(value.w) if kind is attend.additive else None


def _call(family, inputs, options):
    """Straight to attend, with autograd where it has to know; by the operator where more of PyTorch is to see the call."""
    if is_dynamo_compiling() or is_watched():
        return _by_operator(family, inputs, options)
    found = False
    for given in (inputs, options):
        for name, value in given.items():
            one = _requires_grad(value)
            if one is None or name == "out" or isinstance(value, Tensor) and name in _NUMBERS:
                return _by_operator(family, inputs, options)
            found = found or one
    if options.get("dropout_p") or options.get("seed") is not None:
        options = _seeded(options)
    if not found:
        return family.forward(**inputs, **options)
    call = DirectCall(family, inputs | options)
    if not _C.is_grad_enabled():
        return _named(options, call.forward(call.take_tensors()))
    asked = {name: options.get(name, False) for name in family.results}
    flag("return_lse", asked["return_lse"])
    return _named(asked, recorded(call, asked))


def _drawn_seed():
    return torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu")


def _seeded(options):
    """Options in which a seed is an integer."""
    seed = options.get("seed")
    if isinstance(seed, Tensor):
        return options | {"seed": seed_tensor(seed).item() % 2**64}
    return options if seed is not None else options | {"seed": _drawn_seed().item()}


def _by_operator(family, inputs, options):
    for name, x in inputs.items():
        if x is not None or name not in ("cu_seqlens_k", "block_table"):
            tensor(name, x)
    asked = {}
    for name in family.results:
        given = options.pop(name, None)
        if name == "return_scores":
            asked[name] = None if given is None else word(name, given)
        else:
            asked[name] = given is not None and flag(name, given)
    for name in options:
        if name not in OPTIONS or family is PACKED and name in ("mask", "bias", "layout"):
            raise TypeError(f"{family.name}() got an unexpected keyword argument {name!r}")
    arguments = arguments_of(options)
    if arguments["dropout_p"] and arguments["seed"] is None:
        arguments["seed"] = _drawn_seed()
    return _named(asked, family.operator()(*inputs.values(), *arguments.values(), *asked.values()))


def _named(asked, results):
    """Results as attend gives them: out alone, or a named tuple."""
    if len(results) == 1:
        return results[0]
    return _RESULTS[tuple(bool(asked.get(name)) for name in DENSE.results)](*results)


def _signature_of(function):
    signature = inspect.signature(function)
    return signature.replace(parameters=[x for name, x in signature.parameters.items() if name != "out"])


attention.__signature__ = _signature_of(attend.attention)
attention_varlen.__signature__ = _signature_of(attend.attention_varlen)
