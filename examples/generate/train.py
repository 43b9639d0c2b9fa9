#!/usr/bin/env python3
"""Trains the language model of this example: bytes in, the next byte out.

    python examples/generate/train.py

A decoder as Llama has it: RMSNorm, rotary embeddings, grouped-query attention, SwiGLU, one table of embeddings for both ends. Writes
kjv.safetensors, and expected.txt: what the stored weights continue some prompts with, byte by byte the likeliest one. attend-generate is
held to those texts. Needs torch, numpy and safetensors; one thread takes about a quarter of an hour.
"""

import argparse
import math
import pathlib
import shlex
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_WIDTH, HIDDEN = 4, 128, 4, 2, 32, 352
CONTEXT, ROTARY_BASE, EPSILON = 256, 10000.0, 1e-5
LEAD = 1e-3  # of the scores of what expected.txt holds

# What expected.txt holds: arguments of attend-generate. The last two texts are longer than any of training: each byte sees so many newest ones.
TRANSCRIPTS = ['--tokens 200 --prompt "Hear, O LORD"', '--tokens 200 --prompt "And it came to pass "',
               '--tokens 400 --prompt "In the beginning God created "', '--tokens 400 --window 96 --prompt "The LORD "']


def new_weights(vocabulary):
    """Their shapes are what attend-generate knows of the model's sizes."""
    inner = 0.02 / math.sqrt(2 * LAYERS)  # what joins the residual stream, so that its size does not depend on the depth (GPT-2)
    weights = {"embedding": 0.02 * torch.randn(vocabulary, WIDTH), "norm": torch.ones(WIDTH)}
    for layer in range(LAYERS):
        weights |= {f"layers.{layer}.{name}": tensor for name, tensor in {
            "attention_norm": torch.ones(WIDTH),
            "q": 0.02 * torch.randn(HEADS, HEAD_WIDTH, WIDTH),
            "k": 0.02 * torch.randn(KV_HEADS, HEAD_WIDTH, WIDTH),
            "v": 0.02 * torch.randn(KV_HEADS, HEAD_WIDTH, WIDTH),
            "o": inner * torch.randn(WIDTH, HEADS, HEAD_WIDTH),
            "mlp_norm": torch.ones(WIDTH),
            "gate": 0.02 * torch.randn(HIDDEN, WIDTH),
            "up": 0.02 * torch.randn(HIDDEN, WIDTH),
            "down": inner * torch.randn(WIDTH, HIDDEN)}.items()}
    return weights


def rotate(x):
    """Turns the pairs (m, m + E/2) of each head by position / base^(2m/E): attend::rotary with its defaults."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64) / half))
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def logits(weights, tokens, window=None):
    """Tokens (B, L) to scores of the byte after each of them (B, L, V). With a window, a token sees so many newest ones, itself included."""
    seen = None
    if window is not None:
        behind = torch.arange(tokens.shape[1])[:, None] - torch.arange(tokens.shape[1])
        seen = (behind >= 0) & (behind < window)

    def norm(x, name):
        return F.rms_norm(x, (WIDTH,), weights[name], EPSILON)

    x = weights["embedding"][tokens]
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        h = norm(x, at + "attention_norm")
        q, k, v = (F.linear(h, weights[at + name].flatten(0, 1)).unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for name in "qkv")
        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, attn_mask=seen, is_causal=seen is None, enable_gqa=True)
        x = x + F.linear(y.transpose(1, 2).flatten(2), weights[at + "o"].flatten(1))
        h = norm(x, at + "mlp_norm")
        x = x + F.linear(F.silu(F.linear(h, weights[at + "gate"])) * F.linear(h, weights[at + "up"]), weights[at + "down"])
    return F.linear(norm(x, "norm"), weights["embedding"])


def loss(weights, rows):
    """Mean of -ln p of each byte but a row's first."""
    return F.cross_entropy(logits(weights, rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def learning_rate(step, steps, most):
    """A short rise, then half a cosine down to a twentieth."""
    warm_up = min(100, steps)
    if step < warm_up:
        return most * (step + 1) / warm_up
    return most * (0.05 + 0.95 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up))) / 2)


@torch.no_grad()
def held_out_loss(weights, rows):
    return sum(loss(weights, part).item() * len(part) for part in rows.split(32)) / len(rows)


def train(weights, training, rows, args):
    """Adam with decoupled decay of the matrices; prints a line as it goes, and the loss over what was held out now and then."""
    for tensor in weights.values():
        tensor.requires_grad_(True)
    optimizer = torch.optim.AdamW([{"params": [w for w in weights.values() if w.dim() > 1], "weight_decay": 0.1},
                                   {"params": [w for w in weights.values() if w.dim() == 1], "weight_decay": 0.0}],
                                  betas=(0.9, 0.95))
    begin, recent = time.monotonic(), None
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.learning_rate)
        starts = torch.randint(len(training) - CONTEXT, (args.batch, 1))
        now = loss(weights, training[starts + torch.arange(CONTEXT + 1)])
        optimizer.zero_grad()
        now.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step()
        recent = now.item() if recent is None else 0.98 * recent + 0.02 * now.item()
        last = step + 1 == args.steps
        if sys.stderr.isatty() or (step + 1) % 50 == 0 or last:
            left = (time.monotonic() - begin) / (step + 1) * (args.steps - step - 1)
            print(f"\rstep {step + 1} of {args.steps}, loss {recent:.3f}, {left / 60:.1f} min left ", end="", file=sys.stderr, flush=True)
        if (step + 1) % 250 == 0 or last:
            print(f"\nheld out: {held_out_loss(weights, rows):.4f} nats a byte", file=sys.stderr)


def save(weights, vocabulary, file):
    """The metadata are for people."""
    stored = {name: tensor.detach().half() for name, tensor in weights.items()}
    stored |= {"vocabulary": torch.tensor(vocabulary, dtype=torch.int32), "context": torch.tensor([CONTEXT], dtype=torch.int32),
               "rotary_base": torch.tensor([ROTARY_BASE])}
    config = {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "kv_heads": KV_HEADS, "head_width": HEAD_WIDTH, "hidden": HIDDEN,
              "norm_epsilon": EPSILON}
    save_file(stored, file, {name: str(value) for name, value in config.items()})


@torch.no_grad()
def greedy(weights, vocabulary, prompt, count, window):
    """The likeliest continuation, computed anew for every byte, and the smallest lead that a chosen byte had over the next best."""
    tokens, lead = [vocabulary.index(byte) for byte in prompt], math.inf
    for _ in range(count):
        best = logits(weights, torch.tensor([tokens]), window)[0, -1].topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
    return bytes(vocabulary[token] for token in tokens), lead


def write_transcripts(weights, vocabulary, path):
    """Each prompt as a command and what it prints."""
    with path.open("wb") as file:
        for line in TRANSCRIPTS:
            parser = argparse.ArgumentParser()
            parser.add_argument("--tokens", type=int)
            parser.add_argument("--window", type=int)
            parser.add_argument("--prompt")
            given = parser.parse_args(shlex.split(line))
            if given.window is None and len(given.prompt) + given.tokens > CONTEXT:
                given.window = CONTEXT  # as attend-generate has it
            text, lead = greedy(weights, vocabulary, given.prompt.encode(), given.tokens, given.window)
            print(f"{line}: every byte leads by {lead:.4f} or more", file=sys.stderr)
            # Sums in another order move scores by about 1e-5. A text has to be the same whatever the order.
            if lead < LEAD:
                raise SystemExit(f"expected leads of {LEAD} or more; TRANSCRIPTS needs another prompt")
            file.write(f"$ ./dev generate --greedy {line}\n".encode() + text + b"\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=pathlib.Path, default=HERE / "kjv.txt")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="folder of kjv.safetensors and expected.txt")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=1, help="sums, and so the last bits of the weights, depend on it")
    parser.add_argument("--seed", type=int, default=1611)
    parser.add_argument("--transcripts", action="store_true", help="train nothing: expected.txt for the weights that are there")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    text = args.text.read_bytes()
    vocabulary = sorted(set(text))
    # Every twentieth chapter is held out: chapters are apart by empty lines.
    chapters = [np.searchsorted(vocabulary, np.frombuffer(chapter + b"\n\n", np.uint8)) for chapter in text.rstrip().split(b"\n\n")]
    training = torch.from_numpy(np.concatenate([c for i, c in enumerate(chapters) if i % 20 != 19]))
    rows = torch.from_numpy(np.concatenate(chapters[19::20])).unfold(0, CONTEXT + 1, CONTEXT)

    file = args.out / "kjv.safetensors"
    if not args.transcripts:
        weights = new_weights(len(vocabulary))
        print(f"{sum(w.numel() for w in weights.values())} parameters, {len(training)} bytes to learn from, {rows.numel()} held out",
              file=sys.stderr)
        train(weights, training, rows, args)
        save(weights, vocabulary, file)
    # What follows is about the weights as others read them, rounded.
    weights = {name: tensor.float() for name, tensor in load_file(file).items()}
    print(f"held out, weights rounded to float16: {held_out_loss(weights, rows):.4f} nats a byte", file=sys.stderr)
    write_transcripts(weights, vocabulary, args.out / "expected.txt")


if __name__ == "__main__":
    main()
