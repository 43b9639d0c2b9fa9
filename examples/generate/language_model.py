"""The language model of this example in PyTorch: bytes in, the next byte out.

A decoder as Llama has it: RMSNorm, rotary embeddings, grouped-query attention, SwiGLU, one table of embeddings for both ends. Attention is
a function that the caller passes, so that train.py here and examples/train compute the same model. Needs torch and numpy.
"""

import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

TEXT = pathlib.Path(__file__).parent / "kjv.txt"
LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_WIDTH, HIDDEN = 4, 128, 4, 2, 32, 352
ROTARY_BASE, EPSILON = 10000.0, 1e-5


def new_weights(vocabulary, generator=None):
    """Their shapes are what attend-generate knows of the model's sizes."""
    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    inner = 0.02 / math.sqrt(2 * LAYERS)  # what joins the residual stream, so that its size does not depend on the depth (GPT-2)
    weights = {"embedding": 0.02 * randn(vocabulary, WIDTH), "norm": torch.ones(WIDTH)}
    for layer in range(LAYERS):
        weights |= {f"layers.{layer}.{name}": tensor for name, tensor in {
            "attention_norm": torch.ones(WIDTH),
            "q": 0.02 * randn(HEADS, HEAD_WIDTH, WIDTH),
            "k": 0.02 * randn(KV_HEADS, HEAD_WIDTH, WIDTH),
            "v": 0.02 * randn(KV_HEADS, HEAD_WIDTH, WIDTH),
            "o": inner * randn(WIDTH, HEADS, HEAD_WIDTH),
            "mlp_norm": torch.ones(WIDTH),
            "gate": 0.02 * randn(HIDDEN, WIDTH),
            "up": 0.02 * randn(HIDDEN, WIDTH),
            "down": inner * randn(WIDTH, HIDDEN)}.items()}
    return weights


def rotate(x):
    """Turns the pairs (m, m + E/2) of each head by position / base^(2m/E): attend::rotary with its defaults."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64) / half))
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def causal(q, k, v):
    """PyTorch's attention of q (B, HEADS, L, HEAD_WIDTH) to k and v (B, KV_HEADS, L, HEAD_WIDTH): each byte sees itself and those before."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def logits(weights, tokens, attention=causal):
    """Tokens (B, L) to scores of the byte after each of them (B, L, V)."""

    def norm(x, name):
        return F.rms_norm(x, (WIDTH,), weights[name], EPSILON)

    x = weights["embedding"][tokens]
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        h = norm(x, at + "attention_norm")
        q, k, v = (F.linear(h, weights[at + name].flatten(0, 1)).unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for name in "qkv")
        y = attention(rotate(q), rotate(k), v)
        x = x + F.linear(y.transpose(1, 2).flatten(2), weights[at + "o"].flatten(1))
        h = norm(x, at + "mlp_norm")
        x = x + F.linear(F.silu(F.linear(h, weights[at + "gate"])) * F.linear(h, weights[at + "up"]), weights[at + "down"])
    return F.linear(norm(x, "norm"), weights["embedding"])


def losses(weights, rows, attention=causal):
    """-ln p of each byte but a row's first: rows (B, L + 1) to (B, L)."""
    scores = logits(weights, rows[:, :-1], attention)
    return F.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten(), reduction="none").unflatten(0, (len(rows), -1))


def new_optimizer(weights, **options):
    """Adam with decoupled decay of the matrices."""
    return torch.optim.AdamW([{"params": [w for w in weights.values() if w.dim() > 1], "weight_decay": 0.1},
                              {"params": [w for w in weights.values() if w.dim() == 1], "weight_decay": 0.0}], betas=(0.9, 0.95), **options)


def learning_rate(step, steps, most):
    """A short rise, then half a cosine down to a twentieth."""
    warm_up = min(100, steps)
    if step < warm_up:
        return most * (step + 1) / warm_up
    return most * (0.05 + 0.95 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up))) / 2)


def read_text(path, context):
    """The vocabulary (sorted bytes), what is learned from (n), and what is held out as rows (n, context + 1), both as indices of bytes.

    Every twentieth chapter is held out: chapters are apart by empty lines.
    """
    text = path.read_bytes()
    vocabulary = sorted(set(text))
    chapters = [np.searchsorted(vocabulary, np.frombuffer(chapter + b"\n\n", np.uint8)) for chapter in text.rstrip().split(b"\n\n")]
    training = torch.from_numpy(np.concatenate([c for i, c in enumerate(chapters) if i % 20 != 19]))
    return vocabulary, training, torch.from_numpy(np.concatenate(chapters[19::20])).unfold(0, context + 1, context)


def draw_rows(training, count, context, generator=None):
    """Rows (count, context + 1) from anywhere in the text."""
    starts = torch.randint(len(training) - context, (count, 1), generator=generator)
    return training[starts + torch.arange(context + 1)]
