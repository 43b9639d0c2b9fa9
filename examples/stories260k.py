#!/usr/bin/env python3
"""Decodes with a real language model through attend's caches, and holds every step to a recorded run of the same model.

    python examples/stories260k.py FOLDER

FOLDER holds stories260K.bin (https://huggingface.co/karpathy/tinyllamas, MIT: 5 layers, 8 heads over 4 of keys and values, width 64) and
decode_capture.npz: `tokens`, and per layer and position `q`, `k`, `v` and float64 `attn_out`. Nothing of the model is part of attend.

Two things are checked, over a contiguous cache and over pages with a fork in the middle: a greedy decode gives the recorded tokens, and attention over the
recorded q, k and v is within the error bound of float64, though scores reach 193.
"""

import argparse
import math
import pathlib
import struct
import sys

import numpy as np

import attend

BOUND = 2e-6  # of the largest |v|, or what rounding scores of their size makes inevitable (docs: numerics of reference.hpp)


class Model:
    """A llama2.c checkpoint of version 0, one token at a time."""

    def __init__(self, path):
        data = path.read_bytes()
        self.width, hidden, self.layers, self.heads, self.kv_heads, words, self.positions = struct.unpack("<7i", data[:28])
        shared, words = words > 0, abs(words)
        self.head_width = self.width // self.heads
        numbers, at = np.frombuffer(data, np.float32, offset=28), 0

        def take(*shape):
            nonlocal at
            count = math.prod(shape)
            at += count
            return numbers[at - count:at].reshape(shape)

        n, d, kv = self.layers, self.width, self.kv_heads * self.head_width
        self.embedding = take(words, d)
        self.norm_attention, self.q, self.k, self.v = take(n, d), take(n, d, d), take(n, kv, d), take(n, kv, d)
        self.out, self.norm_ffn = take(n, d, d), take(n, d)
        self.up, self.down, self.gate, self.norm = take(n, hidden, d), take(n, d, hidden), take(n, hidden, d), take(d)
        take(2, self.positions, self.head_width // 2)  # tables of cosines and sines, computed below
        self.classifier = self.embedding if shared else take(words, d)
        self.frequencies = 10000.0 ** -(np.arange(0, self.head_width, 2) / self.head_width)

    def rotate(self, x, position):
        """Rotary embedding of neighbouring columns."""
        cos, sin = np.cos(position * self.frequencies), np.sin(position * self.frequencies)
        y = np.empty_like(x)
        y[:, 0::2] = x[:, 0::2] * cos - x[:, 1::2] * sin
        y[:, 1::2] = x[:, 0::2] * sin + x[:, 1::2] * cos
        return y

    def step(self, token, position, attend_layer):
        """Logits of the next token. attend_layer(layer, q, k, v) gives the attention of the newest token, all (heads, width of a head)."""
        def norm(x, weight):
            return x / np.sqrt(np.mean(x * x) + 1e-5) * weight

        x = self.embedding[token].astype(np.float32)
        for layer in range(self.layers):
            h = norm(x, self.norm_attention[layer])
            q, k, v = ((w[layer] @ h).reshape(-1, self.head_width) for w in (self.q, self.k, self.v))
            y = attend_layer(layer, self.rotate(q, position), self.rotate(k, position), v)
            x = x + self.out[layer] @ y.reshape(-1)
            h = norm(x, self.norm_ffn[layer])
            a = self.up[layer] @ h
            x = x + self.down[layer] @ (a / (1 + np.exp(-a)) * (self.gate[layer] @ h))
        return self.classifier @ norm(x, self.norm)


class Contiguous:
    """One cache per layer."""

    def __init__(self, model, tokens):
        self.caches = [attend.KVCache(1, model.kv_heads, tokens, model.head_width) for _ in range(model.layers)]

    def attend(self, layer, q, k, v):
        cache = self.caches[layer]
        cache.append(np.float32(k)[None, :, None], np.float32(v)[None, :, None])
        return attend.decode(np.float32(q)[None, :, None], cache)[0, :, 0]


class Paged:
    """One pool per layer; half-way, a fork goes on and its origin is freed."""

    def __init__(self, model, tokens):
        self.tokens = tokens
        self.caches = [attend.PagedKVCache(tokens // 4 + 2, 8, model.kv_heads, model.head_width) for _ in range(model.layers)]
        self.sequences = [cache.new_sequence() for cache in self.caches]

    def attend(self, layer, q, k, v):
        cache, sequence = self.caches[layer], self.sequences[layer]
        if cache.length(sequence) == self.tokens // 2:
            self.sequences[layer] = cache.fork(sequence)
            cache.append(sequence, 99 * np.ones((len(k), 3, k.shape[1]), np.float32), 99 * np.ones((len(v), 3, v.shape[1]), np.float32))
            cache.free(sequence)
            sequence = self.sequences[layer]
        cache.append(sequence, np.float32(k)[:, None], np.float32(v)[:, None])
        return attend.decode(np.float32(q)[None, :, None], cache, sequences=[sequence])[0, :, 0]


def greedy(model, kind, tokens):
    """As many tokens as were recorded, each the likeliest after those before it."""
    cache, chosen = kind(model, len(tokens)), [tokens[0]]
    for position in range(len(tokens) - 1):
        chosen.append(int(np.argmax(model.step(chosen[-1], position, cache.attend))))
    return chosen


def worst_part_of_bound(model, kind, capture):
    """The largest error of attention over what was recorded, as a part of its bound."""
    q, k, v, truth = (capture[name] for name in ("q", "k", "v", "attn_out"))
    cache, worst, largest = kind(model, q.shape[2]), 0.0, 0.0
    for position in range(q.shape[2]):
        for layer in range(model.layers):
            y = cache.attend(layer, q[layer, :, position], k[layer, :, position], v[layer, :, position])
            seen = [x[layer].astype(np.float64).repeat(model.heads // model.kv_heads, 0)[:, :position + 1] for x in (k, v)]
            scores = np.einsum("hd,hjd->hj", q[layer, :, position].astype(np.float64), seen[0]) / math.sqrt(model.head_width)
            sizes = np.einsum("hd,hjd->hj", np.abs(q[layer, :, position]), np.abs(seen[0])).max(1) / math.sqrt(model.head_width)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            exact = np.einsum("hj,hjd->hd", weights, seen[1])
            moved = np.einsum("hj,hjd->hd", weights, np.abs(seen[1] - exact[:, None]))
            bound = np.maximum(BOUND * np.abs(seen[1]).max((1, 2))[:, None], 2 * 2.0 ** -23 * sizes[:, None] * moved)
            worst, largest = max(worst, float((np.abs(y - exact) / bound).max())), max(largest, float(np.abs(scores).max()))
            if not np.allclose(exact, truth[layer, :, position], atol=1e-5):
                raise SystemExit("the capture's own output does not belong to its q, k and v")
    return worst, largest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="with stories260K.bin and decode_capture.npz")
    folder = parser.parse_args().folder
    model, capture = Model(folder / "stories260K.bin"), np.load(folder / "decode_capture.npz")
    tokens, right = capture["tokens"].tolist(), True
    for kind in (Contiguous, Paged):
        chosen = greedy(model, kind, tokens)
        same = sum(a == b for a, b in zip(chosen, tokens))
        worst, largest = worst_part_of_bound(model, kind, capture)
        print(f"{kind.__name__.lower():<11} {same - 1} of {len(tokens) - 1} tokens as recorded; attention at most {worst:.2f} of its error bound, "
              f"scores up to {largest:.0f}")
        right = right and chosen == tokens and worst <= 1
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
