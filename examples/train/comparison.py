"""Whether two trainings are the same but for noise, and which one is faster.

Sums in another order differ in the last digits, and training makes that grow, so that two correct trainings part after some steps as two
seeds do, only later. What may be asked of them:

* Gradients for the same weights are equal to rounding, before the first step and after the last.
* The curves of losses are no farther apart than two of PyTorch's own that begin with another seed; the same of the losses of each example
  that was held out.
"""

import statistics
from dataclasses import dataclass

import torch

from .run import BLOCK

WINDOWS = 20  # of a curve: the noise of single batches is not what is compared
GRADIENT_BOUND = 1e-4  # of the norm of a tensor's gradient, in float32


@dataclass(frozen=True)
class Check:
    """A number and what it may be at most."""

    name: str
    value: float
    bound: float
    source: str  # of the bound

    def holds(self):
        return self.value <= self.bound


def windows(losses):
    """Means over up to WINDOWS parts of a curve."""
    parts = torch.tensor(losses, dtype=torch.float64).tensor_split(min(WINDOWS, len(losses)))
    return torch.stack([part.mean() for part in parts])


def distance(a, b):
    """The root of the mean square of differences."""
    return (a.double() - b.double()).square().mean().sqrt().item()


def gradient_difference(task, weights):
    """Gradients of a part of what is held out, through attend and PyTorch: the largest relative difference of a tensor's."""
    batch = tuple(tensor[:task.part] for tensor in task.held_out)
    weights = {name: tensor.detach().requires_grad_(True) for name, tensor in weights.items()}
    ours, theirs = (torch.autograd.grad(task.losses(weights, batch, task.attentions[name]).mean(), list(weights.values()))
                    for name in ("attend", "PyTorch"))
    return max(((a - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True))


def checks(task, ours, theirs, again, first_weights):
    """What must hold of the runs of attend, of PyTorch, and of PyTorch with another seed."""
    source = f"PyTorch with seeds {theirs.seed} and {again.seed}"
    held_out = [run.held_out() for run in (ours, theirs, again)]
    curves = [windows(run.losses) for run in (ours, theirs, again)]
    return [
        Check("gradients for the first weights, relative", gradient_difference(task, first_weights), GRADIENT_BOUND, "rounding"),
        Check("gradients for the last weights, relative", gradient_difference(task, ours.weights), GRADIENT_BOUND, "rounding"),
        Check(f"losses of training, {len(curves[0])} parts", distance(*curves[:2]), distance(*curves[1:]), source),
        Check(f"losses held out, {len(held_out[0])} examples", distance(*held_out[:2]), distance(*held_out[1:]), source),
    ]


def block_seconds(run):
    """The mean time of a step in each block but the first, where memory and caches are new; of a short run, in that one."""
    blocks = [statistics.fmean(run.seconds[at:at + BLOCK]) for at in range(0, len(run.seconds), BLOCK)]
    return blocks[1:] or blocks


def speed(ours, theirs):
    """How many times as fast a step is through attend: median and quartiles over pairs of neighbouring blocks."""
    ratios = [b / a for a, b in zip(block_seconds(ours), block_seconds(theirs), strict=True)]
    if len(ratios) == 1:
        return ratios * 3
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, middle, high
