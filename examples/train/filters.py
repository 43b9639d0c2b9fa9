"""Step 4 of the ladder: one filter f(x) = q · x for regions of any size, y = (1/N) Σ_i (q · x_i) x_i, learned.

A region is a cloud of N points, N another one for each. What is to be told of it is how two directions a and b that the model does not know
vary together: the mean of (a · x_i)(b · x_i), with noise. The model has two vectors, the filter q and a read-out r, and says r · y. As
r · y = r^T C q, where C is the mean of x_i x_i^T, it is right about every cloud only where q r^T + r q^T = a b^T + b a^T. For a and b that are
orthogonal and of length 1 this has one solution but for the length that q gives to r: one of the two vectors lies along a, the other along b.
So what was learned can be held to what is true.
"""

import torch
import torch.nn.functional as F

import attend.torch

from .task import Task

WIDTH, BATCH, NOISE = 8, 64, 0.05
TRAINED, HELD_OUT = (8, 64), (65, 256)  # points of a cloud: those of training, and those of what is held out
UNSEEN = (1, 2, 4, 100, 1000, 10000)


def attend_attention(q, x, sizes):
    """Filter q (1, 1, WIDTH) over the first sizes[b] points of x (B, 1, most points, WIDTH): the means y (B, 1, 1, WIDTH)."""
    return attend.torch.attention(q, x, x, key_lengths=sizes, normalizer="mean", scale=1)


def pytorch_attention(q, x, sizes):
    """The same by products of matrices, in which points past a cloud's size have weight 0."""
    inside = torch.arange(x.shape[-2]) < sizes[:, None, None, None]
    return torch.where(inside, q @ x.transpose(-1, -2), 0) @ x / sizes[:, None, None, None]


def clouds(directions, count, sizes, generator, noise=NOISE):
    """Points (count, 1, most, WIDTH) of normal distributions, each with a covariance of its own; sizes (count); what is to be told (count)."""
    least, most = sizes
    sizes = torch.randint(least, most + 1, (count,), generator=generator)
    shapes = torch.randn(count, WIDTH, WIDTH, generator=generator) / WIDTH**0.5
    points = torch.randn(count, most, WIDTH, generator=generator) @ shapes
    inside = torch.arange(most) < sizes[:, None]
    told = torch.where(inside, (points @ directions.T).prod(-1), 0).sum(1) / sizes
    return points[:, None], sizes, told + noise * torch.randn(count, generator=generator)


class Filter(Task):
    title, unit, steps, most = "filter", "squared error", 1000, 2e-2
    attentions = {"attend": attend_attention, "PyTorch": pytorch_attention}
    part = 512

    def __init__(self):
        generator = torch.Generator().manual_seed(4)
        self.directions = torch.linalg.qr(torch.randn(WIDTH, 2, generator=generator)).Q.T.contiguous()
        self.held_out = clouds(self.directions, 512, HELD_OUT, generator)

    def new_weights(self, generator):
        return {name: torch.randn(WIDTH, generator=generator) / WIDTH**0.5 for name in ("filter", "read_out")}

    def draw(self, generator):
        return clouds(self.directions, BATCH, TRAINED, generator)

    def new_optimizer(self, weights):
        return torch.optim.Adam(weights.values(), fused=True)

    def say(self, weights, points, sizes, attention):
        """What the model says of each cloud: (B)."""
        return attention(weights["filter"][None, None], points, sizes).flatten(1) @ weights["read_out"]

    def losses(self, weights, batch, attention):
        points, sizes, told = batch
        return (self.say(weights, points, sizes, attention) - told) ** 2

    def truth(self, weights):
        """The directions of filter and read-out: a and b, or b and a, with the signs of what was learned."""
        q, r = F.normalize(weights["filter"], dim=0), F.normalize(weights["read_out"], dim=0)
        a, b = self.directions if (self.directions[0] @ q).abs() > (self.directions[1] @ q).abs() else self.directions.flip(0)
        return q, r, a * torch.sign(a @ q), b * torch.sign(b @ r)

    def measures(self, weights, attention):
        q, r, a, b = self.truth(weights)
        return {"cosine of filter and truth": f"{q @ a:.6f}", "cosine of read-out and truth": f"{r @ b:.6f}",
                "|filter| · |read-out|, 1 is right": f"{weights['filter'].norm() * weights['read_out'].norm():.6f}"}

    def notes(self, weights, attention):
        """The vectors beside the truth, all of length 1, and errors on sizes that training never saw."""
        q, r, a, b = self.truth(weights)
        lines = [name + "".join(f"{number:9.4f}" for number in vector)
                 for name, vector in (("filter    ", q), ("truth     ", a), ("read-out  ", r), ("truth     ", b))]
        lines.append(f"one filter for regions of every size; training saw {TRAINED[0]} to {TRAINED[1]} points:")
        for size in UNSEEN:
            points, sizes, told = clouds(self.directions, 100, (size, size), torch.Generator().manual_seed(size), noise=0)
            error = self.say(weights, points, sizes, attention) - told
            root = [x.square().mean().sqrt().item() for x in (error, told)]
            lines.append(f"{size:6d} points: error {root[0]:.4f} where what is to be told is {root[1]:.3f}")
        return lines
