"""The language model of examples/generate: bytes in, the next byte out; causal, four query heads on two of keys and values."""

import torch

import attend.torch
from generate import language_model

from .task import Task

CONTEXT, BATCH = 1024, 2


def attend_attention(q, k, v):
    """q (B, H, L, E), k and v (B, Hk, L, E): each byte sees itself and those before."""
    return attend.torch.attention(q, k, v, causal=True)


class Language(Task):
    title, unit, steps, most, clip = "language", "nats a byte", 600, 2e-3, 1.0
    attentions = {"attend": attend_attention, "PyTorch": language_model.causal}
    part = 4

    def __init__(self):
        self.vocabulary, self.training, rows = language_model.read_text(language_model.TEXT, CONTEXT)
        self.held_out = (rows,)

    def new_weights(self, generator):
        return language_model.new_weights(len(self.vocabulary), generator)

    def draw(self, generator):
        return (language_model.draw_rows(self.training, BATCH, CONTEXT, generator),)

    def new_optimizer(self, weights):
        return language_model.new_optimizer(weights, fused=True)

    def losses(self, weights, batch, attention):
        return language_model.losses(weights, batch[0], attention).mean(1)

    def notes(self, weights, attention):
        """What the model takes for the likeliest continuation of a few words."""
        text = "And it came to pass "
        tokens = [self.vocabulary.index(byte) for byte in text.encode()]
        for _ in range(60):
            tokens.append(language_model.logits(weights, torch.tensor([tokens]), attention)[0, -1].argmax().item())
        return [repr(bytes(self.vocabulary[token] for token in tokens).decode(errors="replace"))]
