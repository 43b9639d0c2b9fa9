"""A vision transformer on handwritten digits, whose heads each learn a table of biases by the offset between patches.

Through attend the table goes into the call as it is, `relative` to the cells of a grid, and its gradient comes back in its shape: neither
exists for pairs of patches. PyTorch's attention knows no such table, so there it is expanded to one number per pair, by indexing.

The pictures are scikit-learn's (8 x 8 pixels; E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998, CC BY 4.0).
"""

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import attend.torch

from .task import Task

SIDE, PIXELS, CLASSES = 4, 2, 10  # a picture is 4 x 4 patches of 2 x 2 pixels
PATCHES, REACH = SIDE * SIDE, 2 * SIDE - 1  # offsets from -3 to 3
LAYERS, WIDTH, HEADS, HEAD_WIDTH, HIDDEN = 2, 32, 4, 8, 64
BATCH, HELD_OUT = 64, 397


def attend_attention(q, k, v, table):
    """q, k, v (B, HEADS, PATCHES, HEAD_WIDTH), table (HEADS, REACH, REACH) by rows and columns from a query to its key."""
    return attend.torch.attention(q, k, v, grid=(SIDE, SIDE), relative=table)


def offsets():
    """For each query and key the index into a flattened table: (PATCHES, PATCHES)."""
    cell = torch.arange(PATCHES)
    rows, columns = cell // SIDE, cell % SIDE
    return (rows - rows[:, None] + SIDE - 1) * REACH + columns - columns[:, None] + SIDE - 1


OFFSETS = offsets()


def pytorch_attention(q, k, v, table):
    """The same, with the table expanded to (HEADS, PATCHES, PATCHES)."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=table.flatten(1)[:, OFFSETS])


def linear(name, outputs, inputs, generator):
    """Uniform within 1 / sqrt(inputs), as torch.nn.Linear begins."""
    return {name: (2 * torch.rand(outputs, inputs, generator=generator) - 1) / inputs**0.5,
            f"{name}_bias": (2 * torch.rand(outputs, generator=generator) - 1) / inputs**0.5}


def norm(name):
    return {name: torch.ones(WIDTH), f"{name}_bias": torch.zeros(WIDTH)}


class Digits(Task):
    title, unit, steps, most = "digits", "nats a picture", 900, 4e-3
    attentions = {"attend": attend_attention, "PyTorch": pytorch_attention}
    part = HELD_OUT

    def __init__(self):
        digits = load_digits()
        pictures = torch.from_numpy((digits.images / 16).astype(np.float32)).unflatten(2, (SIDE, PIXELS)).unflatten(1, (SIDE, PIXELS))
        patches = pictures.transpose(2, 3).flatten(3).flatten(1, 2)
        order = torch.randperm(len(patches), generator=torch.Generator().manual_seed(1))
        patches, classes = patches[order], torch.from_numpy(digits.target)[order]
        self.training = patches[:-HELD_OUT], classes[:-HELD_OUT]
        self.held_out = patches[-HELD_OUT:], classes[-HELD_OUT:]

    def new_weights(self, generator):
        weights = {"position": 0.02 * torch.randn(PATCHES, WIDTH, generator=generator)}
        weights |= linear("patch", WIDTH, PIXELS * PIXELS, generator) | norm("norm") | linear("classes", CLASSES, WIDTH, generator)
        for layer in range(LAYERS):
            at = f"layers.{layer}."
            weights |= norm(at + "attention_norm") | norm(at + "mlp_norm")
            weights |= linear(at + "qkv", 3 * HEADS * HEAD_WIDTH, WIDTH, generator)
            weights |= linear(at + "o", WIDTH, HEADS * HEAD_WIDTH, generator)
            weights |= linear(at + "up", HIDDEN, WIDTH, generator) | linear(at + "down", WIDTH, HIDDEN, generator)
            weights[at + "relative"] = torch.zeros(HEADS, REACH, REACH)
        return weights

    def draw(self, generator):
        chosen = torch.randint(len(self.training[1]), (BATCH,), generator=generator)
        return tuple(part[chosen] for part in self.training)

    def new_optimizer(self, weights):
        return torch.optim.AdamW(weights.values(), weight_decay=0.05, fused=True)

    def logits(self, weights, patches, attention):
        """Patches (B, PATCHES, 4) to scores of the ten digits (B, CLASSES)."""

        def apply(name, x):
            return F.linear(x, weights[name], weights[f"{name}_bias"])

        def normalized(name, x):
            return F.layer_norm(x, (WIDTH,), weights[name], weights[f"{name}_bias"])

        x = apply("patch", patches) + weights["position"]
        for layer in range(LAYERS):
            at = f"layers.{layer}."
            qkv = apply(at + "qkv", normalized(at + "attention_norm", x)).unflatten(-1, (3, HEADS, HEAD_WIDTH))
            y = attention(*qkv.permute(2, 0, 3, 1, 4), weights[at + "relative"])
            x = x + apply(at + "o", y.transpose(1, 2).flatten(2))
            x = x + apply(at + "down", F.gelu(apply(at + "up", normalized(at + "mlp_norm", x))))
        return apply("classes", normalized("norm", x).mean(1))

    def losses(self, weights, batch, attention):
        patches, classes = batch
        return F.cross_entropy(self.logits(weights, patches, attention), classes, reduction="none")

    def measures(self, weights, attention):
        patches, classes = self.held_out
        right = self.logits(weights, patches, attention).argmax(1) == classes
        return {f"right of {len(classes)} pictures held out": f"{100 * right.float().mean().item():.2f} %"}

    def notes(self, weights, attention):
        """How large the biases of the tables have become, and where."""
        lines = []
        for layer in range(LAYERS):
            table = weights[f"layers.{layer}.relative"]
            for head, its in enumerate(table):
                row, column = divmod(its.argmax().item(), REACH)
                lines.append(f"layer {layer}, head {head}: biases from {its.min():+.2f} to {its.max():+.2f}, the largest "
                             f"{row - SIDE + 1:+d} rows and {column - SIDE + 1:+d} columns away")
        return lines
