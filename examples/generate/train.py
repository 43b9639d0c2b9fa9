#!/usr/bin/env python3
"""Trains the language model of this example: bytes in, the next byte out.

    python examples/generate/train.py

The model is that of language_model.py, with PyTorch's attention. Writes kjv.safetensors, and expected.txt: what the stored weights continue
some prompts with, byte by byte the likeliest one. attend-generate is held to those texts. Needs torch, numpy and safetensors; one thread takes
about a quarter of an hour.
"""

import argparse
import math
import pathlib
import shlex
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from language_model import (EPSILON, HEAD_WIDTH, HEADS, HIDDEN, KV_HEADS, LAYERS, ROTARY_BASE, TEXT, WIDTH, causal, draw_rows, learning_rate,
                            logits, losses, new_optimizer, new_weights, read_text)

HERE = pathlib.Path(__file__).parent
CONTEXT = 256
LEAD = 1e-3  # of the scores of what expected.txt holds

# What expected.txt holds: arguments of attend-generate. The last two texts are longer than any of training: each byte sees so many newest ones.
TRANSCRIPTS = ['--tokens 200 --prompt "Hear, O LORD"', '--tokens 200 --prompt "And it came to pass "',
               '--tokens 400 --prompt "In the beginning God created "', '--tokens 400 --window 96 --prompt "The LORD "']


@torch.no_grad()
def held_out_loss(weights, rows):
    return sum(losses(weights, part).mean().item() * len(part) for part in rows.split(32)) / len(rows)


def train(weights, training, rows, args):
    """Prints a line as it goes, and the loss over what was held out now and then."""
    for tensor in weights.values():
        tensor.requires_grad_(True)
    optimizer = new_optimizer(weights)
    begin, recent = time.monotonic(), None
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.learning_rate)
        now = losses(weights, draw_rows(training, args.batch, CONTEXT)).mean()
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


def windowed(window):
    """Causal attention in which a byte sees so many newest ones, itself included."""
    def attention(q, k, v):
        behind = torch.arange(q.shape[-2])[:, None] - torch.arange(q.shape[-2])
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(behind >= 0) & (behind < window), enable_gqa=True)

    return attention


@torch.no_grad()
def greedy(weights, vocabulary, prompt, count, window):
    """The likeliest continuation, computed anew for every byte, and the smallest lead that a chosen byte had over the next best."""
    attention = causal if window is None else windowed(window)
    tokens, lead = [vocabulary.index(byte) for byte in prompt], math.inf
    for _ in range(count):
        best = logits(weights, torch.tensor([tokens]), attention)[0, -1].topk(2)
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
    parser.add_argument("--text", type=pathlib.Path, default=TEXT)
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

    vocabulary, training, rows = read_text(args.text, CONTEXT)
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
