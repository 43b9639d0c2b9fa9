"""Trainings of one task side by side: the same seeds, blocks of steps in turn."""

import time

import torch
from tqdm import tqdm

BLOCK = 10  # steps of one training before the next has its turn


class Run:
    """One training: its weights, the loss of every step and the seconds that it took."""

    def __init__(self, task, name, seed, steps):
        """`name` is one of task.attentions; runs of one seed and number of steps begin with the same weights and see the same batches."""
        self.task, self.name, self.seed, self.steps = task, name, seed, steps
        self.attention = task.attentions[name]
        self.generator = torch.Generator().manual_seed(seed)
        self.weights = {key: tensor.requires_grad_(True) for key, tensor in task.new_weights(self.generator).items()}
        self.optimizer = task.new_optimizer(self.weights)
        self.losses, self.seconds = [], []

    def step(self):
        begin = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = self.task.learning_rate(len(self.losses), self.steps)
        loss = self.task.losses(self.weights, self.task.draw(self.generator), self.attention).mean()
        self.optimizer.zero_grad()
        loss.backward()
        if self.task.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.weights.values(), self.task.clip)
        self.optimizer.step()
        self.losses.append(loss.item())
        self.seconds.append(time.perf_counter() - begin)

    @torch.no_grad()
    def held_out(self):
        """The loss of each example that was held out."""
        parts = zip(*(tensor.split(self.task.part) for tensor in self.task.held_out), strict=True)
        return torch.cat([self.task.losses(self.weights, part, self.attention) for part in parts])

    @torch.no_grad()
    def measures(self):
        return self.task.measures(self.weights, self.attention)

    @torch.no_grad()
    def notes(self):
        return self.task.notes(self.weights, self.attention)


def label(run, runs):
    """The name of a run among others."""
    return run.name if run.seed == runs[0].seed else f"{run.name}, seed {run.seed}"


def train(runs):
    """All runs to their end, in blocks; who begins changes from block to block, so that what else the machine does meets all alike.

    Where standard error is a terminal, a bar shows the steps, and of each run its loss and its steps per second.
    """
    steps = runs[0].steps
    with tqdm(total=len(runs) * steps, unit=" steps", disable=None, dynamic_ncols=True) as bar:
        for block, done in enumerate(range(0, steps, BLOCK)):
            count = min(BLOCK, steps - done)
            for run in runs[block % len(runs):] + runs[:block % len(runs)]:
                for _ in range(count):
                    run.step()
                bar.update(count)
            if not bar.disable:
                bar.set_postfix_str(", ".join(
                    f"{label(run, runs)}: {sum(run.losses[-count:]) / count:.3f} ({count / sum(run.seconds[-count:]):.1f}/s)" for run in runs))
