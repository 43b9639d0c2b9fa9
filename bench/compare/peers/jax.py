"""JAX: jax.nn.dot_product_attention, compiled by XLA for CPUs.

Quirks: arrays are (B, L, H, E) and copied into that layout before the clock starts. It holds L × S weights. XLA takes the number
of its threads from the environment variable NPROC when JAX starts, and one process has one number. A call returns before its
result is there, so that each call waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ..inputs import Inputs
from .peer import Call, Peer, Unsupported, first_line, require_moderate_weights, require_written_out


def by_token(array: np.ndarray) -> jax.Array:
    """(B, L, H, E) of (B, H, L, E)."""
    return jax.device_put(np.ascontiguousarray(array.swapaxes(1, 2)))


def with_gradients(attention):
    """(out, dq, dk, dv) of (q, k, v, dout) by a function of q, k and v."""

    def both(q, k, v, dout, **also):
        out, pull_back = jax.vjp(partial(attention, **also), q, k, v)
        return out, *pull_back(dout)

    return both


class Jax(Peer):
    name = "JAX"
    differentiates = True
    version = jax.__version__

    def __init__(self, threads: int):
        super().__init__(threads)
        if os.environ.setdefault("NPROC", str(threads)) != str(threads):
            raise RuntimeError(f"NPROC is {os.environ['NPROC']} in this process, and {threads} threads are asked for")
        self.device = jax.devices("cpu")[0]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Without float64 made float32, and without the devices of this process that are no CPU."""
        with jax.enable_x64(True), jax.default_device(self.device):
            yield

    def calls(self, inputs: Inputs) -> list[Call]:
        case = inputs.case
        require_written_out(case)
        require_moderate_weights(case)
        options = {"scale": case.factor, "is_causal": case.causal, "local_window_size": case.window, "implementation": "xla"}
        dense = None if case.window and case.mask is None else inputs.written_out()
        if case.window and None in case.window:
            raise Unsupported("windows with two ends only")
        also = {}
        if dense is not None:
            name = "mask" if dense.dtype == bool else "bias"
            also[name] = jnp.asarray(dense if dense.ndim == 4 else dense[None, None])
        attention = partial(jax.nn.dot_product_attention, **options)
        compiled = jax.jit(with_gradients(attention) if case.backward else attention)
        q = by_token(inputs.q)
        more = (by_token(inputs.dout),) if case.backward else ()

        def call(k, v):
            return jax.block_until_ready(compiled(q, k, v, *more, **also))

        calls = [partial(call, by_token(k), by_token(v)) for k, v in zip(inputs.k, inputs.v, strict=True)]
        try:
            calls[0]()
        except (TypeError, ValueError, RuntimeError) as error:
            raise Unsupported(first_line(error)) from error
        return calls

    def shaped(self, inputs: Inputs, result) -> np.ndarray:
        return np.asarray(result).swapaxes(1, 2)
