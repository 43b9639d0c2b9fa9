"""Attention as a function of JAX on the CPU: under jit, with gradients, and over the memory of JAX's arrays.

>>> import attend.jax, jax
>>> q = jax.numpy.ones((1, 8, 16, 64))
>>> jax.jit(attend.jax.attention, static_argnames="causal")(q, q, q, causal=True).shape
(1, 8, 16, 64)

A call is one custom call of XLA (`jax.ffi`), which reads its operands and writes its results in place. The work runs on attend's
threads and the one from which XLA calls, not on XLA's others: `attend.set_num_threads` and `threads` say how many.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from attend import _core
from attend._compatibility import additive
from attend._results import OutLse

if not hasattr(_core, "jax"):
    raise ImportError("attend.jax: this build of attend has none, because the Python that built it had no jaxlib; install jax, "
                      "scikit-build-core and nanobind, then attend from its sources with --no-build-isolation")

import jax  # noqa: E402  what is missing is named first
import jax.numpy as jnp  # noqa: E402

__all__ = ["attention"]

_FORWARD, _BACKWARD = "attend_attention", "attend_attention_backward"
for _name, _handler in zip((_FORWARD, _BACKWARD), _core.jax.handlers(), strict=True):
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")

_PER_BATCH = ("query_offset", "prefix", "key_lengths")  # words, integers, or arrays of integers
_ARRAYS = (*_PER_BATCH, "mask", "bias", "query_segments", "key_segments", "relative", "alibi", "sinks")
_DIFFERENTIABLE = ("q", "k", "v", "bias", "relative", "alibi", "sinks", "additive")


class _Call(NamedTuple):
    """What is known of a call when it is traced, hashable."""

    attributes: tuple[tuple[str, Any], ...]
    shape: tuple[int, ...]  # of out
    return_lse: bool


def attention(q, k, v, *, mask=None, bias=None, causal=False, window=None, query_offset=None, prefix=None, query_segments=None,
              key_segments=None, key_lengths=None, grid=None, neighborhood=None, dilation=1, border="clip", relative=None,
              scale=None, softcap=None, alibi=None, sinks=None, compatibility="dot", normalizer="softmax", dropout_p=0.0,
              seed=None, layout="bhld", return_lse=False, reproducible=False, threads=None):
    """`attend.attention` of JAX's arrays: the same shapes, options, meaning and bits.

    q is (..., H, L, E), k (..., Hk, S, E), v (..., Hk, S, Ev), all float32, float64, float16 or bfloat16; the result is
    (..., H, L, Ev). NumPy's arrays are taken as `jax.numpy.asarray` takes them.

    Arrays may be traced: mask, bias, query_segments, key_segments, relative, sinks, and alibi, query_offset, prefix,
    key_lengths, seed and the weights of `attend.additive` where they are arrays. All else is part of the compiled program, and
    another value compiles another one.

    seed: needed beside dropout_p. An integer, or an array: an integer from 0 on, or a key of two words, so that
        ``jax.random.key(n)`` is the seed n. It never causes a compilation.

    Gradients are those of `attend.attention_backward`, by q, k, v, bias, relative, alibi, sinks, the weights of `attend.additive`
    and, through return_lse, of the LSE; only those that are asked for are computed. Forward-mode differentiation is not there (`jax.custom_vjp`).

    Under vmap each element of the map has the bits and the dropout that it has alone. The axis becomes a batch axis; elements
    are computed one after another beside dropout, where sinks, slopes, tables, weights or integers per batch are mapped, and for
    gradients by others than q, k and v.

    Shapes, dtypes and options are checked when the call is traced: ValueError and TypeError as `attend.attention` raises them.
    What only the numbers can show, a key length that is too large in a compiled call, is a `jax.errors.JaxRuntimeError` with the
    same words. Ctrl-C does not stop a call. Arrays that are sharded over devices are gathered, unless in `jax.shard_map`.

    Returns out, or the named tuple (out, lse).
    """
    options = {
        "mask": mask, "bias": bias, "causal": causal, "window": window, "query_offset": query_offset, "prefix": prefix,
        "query_segments": query_segments, "key_segments": key_segments, "key_lengths": key_lengths, "grid": grid,
        "neighborhood": neighborhood, "dilation": dilation, "border": border, "relative": relative, "scale": scale,
        "softcap": softcap, "alibi": alibi, "sinks": sinks, "score": None, "compatibility": compatibility,
        "normalizer": normalizer, "dropout_p": dropout_p, "seed": None, "layout": layout, "reproducible": reproducible,
        "threads": threads}  # in the order of the packed options
    arrays = {name: _array(x, name) for name, x in (("q", q), ("k", k), ("v", v))}
    arrays |= {name: _array(options[name], name) for name in _ARRAYS if not _is_plain(name, options[name])}
    if "alibi" in arrays and arrays["q"].dtype != np.float64 and arrays["alibi"].dtype == np.float64:
        arrays["alibi"] = arrays["alibi"].astype(np.float32)
    for name in options.keys() & arrays.keys():
        if name not in _PER_BATCH or isinstance(options[name], jax.core.Tracer):  # numbers that are known are checked, too
            options[name] = _stand_in(arrays[name])
    if type(compatibility) is additive:
        arrays["additive"] = _array(compatibility.w, "additive")
        options["compatibility"] = additive(_stand_in(arrays["additive"]))
    for name, value in {**options, "return_lse": return_lse}.items():
        if isinstance(value, jax.core.Tracer):
            raise TypeError(f"{name}: expected a value that is known when the call is traced, got a tracer")
    shape, attributes = _core.jax.trace(*(_stand_in(arrays[name]) for name in "qkv"), return_lse, tuple(options.values()))
    if seed is not None:
        arrays["seed"] = _seed_words(seed)
    elif "dropout_p" in attributes:
        raise ValueError("seed: expected an integer or an array beside dropout_p, got None")
    attributes = {name: value for name, value in attributes.items() if name not in arrays}
    attributes["rank"] = arrays["q"].ndim
    arrays = _vary(arrays, frozenset().union(*map(_varying, arrays.values())))
    results = _compiled(_Call(tuple(sorted(attributes.items())), shape, bool(return_lse)), arrays)
    return OutLse(*results) if return_lse else results[0]


def _is_plain(name, value):
    """Whether an option that may be an array is none."""
    if name == "alibi":
        return value is None or isinstance(value, (bool, np.bool_))
    return value is None or (name in _PER_BATCH and isinstance(value, (str, int, np.integer)))


def _array(value, name):
    if name in _PER_BATCH and isinstance(value, (list, tuple)):
        value = np.asarray(value, None if value else np.int64)
    if not isinstance(value, (jax.Array, np.ndarray)) or isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected an array of JAX or NumPy, got {type(value).__module__}.{type(value).__name__}")
    return value if isinstance(value, jax.Array) else jnp.asarray(value)


def _stand_in(x):
    """An array of NumPy with the shape and dtype of one that may not be computed yet."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)


def _varying(x):
    """The axes of `jax.shard_map` over which an array varies. Versions of JAX that name them otherwise need check_vma=False."""
    kinds = getattr(jax.typeof(x), "manual_axis_type", None)
    return kinds.varying if kinds else frozenset()


def _vary(arrays, axes):
    """All vary over these axes, as one call takes them."""
    return {name: jax.lax.pcast(x, tuple(axes - _varying(x)), to="varying") for name, x in arrays.items()} if axes else arrays


def _seed_words(seed):
    """An integer of shape (), or two words of 32 bits, the high one first, as keys of JAX have them."""
    if isinstance(seed, (int, np.integer)):
        return jnp.array(divmod(_core.jax.seed(seed), 2**32), np.uint32)
    seed = _array(seed, "seed")
    if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        seed = jax.random.key_data(seed)
    if not jnp.issubdtype(seed.dtype, jnp.integer):
        raise TypeError(f"seed: expected integers, got {seed.dtype}")
    if seed.shape != () and (seed.shape, seed.dtype) != ((2,), np.uint32):
        raise ValueError(f"seed: expected one integer, or a key of two words of uint32, got {seed.dtype} of shape {seed.shape}")
    return seed


def _call(target, call, arrays, results):
    """XLA's call: results by name, of these shapes and dtypes. vmap gives every array a further axis in front, of size 1 where
    the array is not mapped."""
    names = {"operands": " ".join(arrays), "results": " ".join(results)}
    types = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results.values())
    made = jax.ffi.ffi_call(target, types, vmap_method="expand_dims")(*arrays.values(), **names, **dict(call.attributes))
    return _vary(dict(zip(results, made, strict=True)), _varying(arrays["q"]))


def _forward(call, arrays, with_lse):
    q = arrays["q"]
    results = {"out": (call.shape, q.dtype)}
    if with_lse:
        *rows, _ = call.shape
        if len(rows) > 1 and dict(call.attributes).get("layout") == "blhd":
            rows[-2:] = reversed(rows[-2:])
        results["lse"] = (tuple(rows), np.float64 if q.dtype == np.float64 else np.float32)
    return _call(_FORWARD, call, arrays, results)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(call, arrays):
    return tuple(_forward(call, arrays, call.return_lse).values())


def _attend_forward(call, arrays):
    # A structure of None: residuals hold arrays only, but the names of a dict are part of their structure.
    wanted = {name: None for name in _DIFFERENTIABLE if name in arrays and arrays[name].perturbed}
    arrays = {name: x.value for name, x in arrays.items()}
    has_lse = dict(call.attributes).get("normalizer", "softmax") == "softmax"
    made = _forward(call, arrays, has_lse)
    return tuple(made.values())[:1 + call.return_lse], (arrays, made, wanted)


def _attend_backward(call, residuals, cotangents):
    arrays, made, wanted = residuals
    if not wanted:  # of integers alone
        return ({name: None for name in arrays},)
    given = {name: x for name, x in zip(("dout", "dlse"), cotangents) if not isinstance(x, jax.custom_derivatives.SymbolicZero)}
    if "dout" not in given:
        given["dout"] = jnp.zeros_like(made["out"])
    results = {f"d{name}": (arrays[name].shape, arrays[name].dtype) for name in wanted}
    by = _call(_BACKWARD, call, arrays | made | given, results)
    return ({name: by.get(f"d{name}") for name in arrays},)


_attend.defvjp(_attend_forward, _attend_backward, symbolic_zeros=True)
_compiled = jax.jit(_attend, static_argnums=0, inline=True)  # so that a call outside of any jit is found, and not traced, again
