"""attend as an attention implementation of Hugging Face transformers.

Masks are those that transformers makes for PyTorch's attention: none where a mask would be the causal triangle or would exclude
nothing, otherwise booleans, in which padding, windows, packed positions and a model's own patterns are one. They are made once
per forward pass, and attend skips the tiles that they empty. What the interface hands over beside a mask becomes options.
"""

import functools

from torch.compiler import is_dynamo_compiling

from attend.torch._calls import attention, attention_varlen

_REFUSED = ("head_mask", "layer_head_mask", "sinks", "indices", "block_indices", "cache")


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, sliding_window=None,
                      softcap=None, s_aux=None, position_bias=None, output_attentions=False, cu_seq_lens_q=None, cu_seq_lens_k=None,
                      **others):
    """The attention function of transformers' AttentionInterface: (out, weights or None).

    query is (B, H, L, E), key (B, Hk, S, E), value (B, Hk, S, Ev), out (B, L, H, Ev), weights (B, H, L, S).

    attention_mask: None, booleans (True = attend) or numbers that are added. None is causal where is_causal, or else the module,
        says so: one query stands at the last key, several stand at the first ones, and keys behind them (of a static cache) are
        not there yet.
    sliding_window: the number of keys that a query sees, its own included. A mask holds it already; without one it is applied
        where causal.
    softcap: as in `attention`.
    s_aux: sinks, one logit per head.
    position_bias: numbers that are added.
    output_attentions: also the weights, where no gradient is required.
    cu_seq_lens_q, cu_seq_lens_k: boundaries of sequences that are packed into one batch row; applied where there is no mask.

    What else a model says (position_ids, use_cache, max_length_q, ...) is for other functions, or in the mask, and is not looked
    at, but for what would change the result: head_mask, sinks per token, selected keys (indices, block_indices), a paged cache.
    These are refused. Raises ValueError, and as `attention` does.
    """
    for name in _REFUSED:
        if others.get(name) is not None:
            raise ValueError(f"{name}: expected None, got {type(others[name]).__name__}; another attn_implementation may have it")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    options = {"scale": scaling, "dropout_p": dropout, "softcap": softcap, "sinks": s_aux}
    queries, keys = query.shape[2], key.shape[2]
    if attention_mask is None and cu_seq_lens_q is not None:
        return _packed(query, key, value, cu_seq_lens_q, cu_seq_lens_k, is_causal, sliding_window, position_bias, output_attentions,
                       options)
    if attention_mask is None:
        options["bias"] = position_bias
        options |= _without_mask(queries, keys, is_causal, sliding_window)
    elif attention_mask.dtype.is_floating_point:
        options["bias"] = attention_mask if position_bias is None else attention_mask + position_bias
    else:
        options |= {"mask": attention_mask, "bias": position_bias}
    given = (x.transpose(1, 2) for x in (query, key, value))
    result = attention(*given, layout="blhd", return_weights=bool(output_attentions), **options)
    return (result.out, result.weights) if output_attentions else (result, None)


def _without_mask(queries, keys, is_causal, sliding_window):
    """Which keys a query sees where transformers made no mask."""
    window = None if sliding_window is None else (sliding_window - 1, 0)
    if not is_causal:
        if sliding_window is not None and keys > sliding_window:
            raise ValueError(f"attention_mask: expected a mask beside sliding_window={sliding_window} where attention is not "
                             "causal, got None")
        return {}
    if queries == 1:
        return {"causal": True, "window": window, "query_offset": "lower_right"}
    options = {"causal": True, "window": window, "query_offset": "upper_left"}
    return options | {"key_lengths": queries} if keys > queries else options


def _packed(query, key, value, starts_q, starts_k, is_causal, sliding_window, position_bias, output_attentions, options):
    if query.shape[0] != 1:
        raise ValueError(f"cu_seq_lens_q: expected one batch row, into which sequences are packed, got {query.shape[0]}")
    for name, value_of in (("position_bias", position_bias), ("output_attentions", output_attentions or None)):
        if value_of is not None:
            raise ValueError(f"{name}: expected none beside cu_seq_lens_q, got {value_of}")
    if sliding_window is not None:
        if not is_causal:
            raise ValueError("sliding_window: expected None beside cu_seq_lens_q where attention is not causal, got "
                             f"{sliding_window}")
        options["window"] = (sliding_window - 1, 0)
    given = (x[0].transpose(0, 1) for x in (query, key, value))
    return attention_varlen(*given, starts_q, starts_q if starts_k is None else starts_k, causal=is_causal, **options)[None], None


@functools.cache
def _refuse_own_attention(config_type):
    """ValueError for models whose layers have one attention of their own: they would take our masks and never call us."""
    from transformers import MODEL_MAPPING

    found = MODEL_MAPPING.get(config_type, ())
    for model in found if isinstance(found, (tuple, list)) else (found,):
        if not model._can_set_attn_implementation():
            raise ValueError("attn_implementation: expected a model that looks its attention up in transformers' "
                             f"AttentionInterface, got {model.__name__}, which has its own; 'eager' is that")


def attention_mask(*arguments, config=None, **options):
    """The mask function of transformers' AttentionMaskInterface: that of PyTorch's attention, for models that will call us."""
    from transformers.masking_utils import sdpa_mask

    if config is not None and not is_dynamo_compiling():  # which cannot look into transformers' table of models
        _refuse_own_attention(type(config))
    return sdpa_mask(*arguments, **options)


def register_with_transformers():
    """Makes ``attn_implementation="attend"`` known to Hugging Face transformers: the attention and its masks.

    >>> attend.torch.register_with_transformers()
    >>> model = AutoModel.from_pretrained(path, attn_implementation="attend")

    Training, generation with transformers' caches, grouped heads, sliding windows, soft caps, sinks, dropout and position biases
    work as the models describe them; keys and values are never repeated. Tensors have to be in the CPU's memory. Calling it again
    changes nothing. Models that do not look their attention up in transformers' AttentionInterface raise ValueError when they ask for a
    mask; those that make no mask by it, either, compute as if nothing had been chosen.

    Raises ImportError without transformers, or where it is older than its AttentionMaskInterface.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register("attend", attention_forward)
    AttentionMaskInterface.register("attend", attention_mask)
