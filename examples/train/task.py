"""What is trained: the interface of digits.py, language.py and filters.py."""

from abc import ABC, abstractmethod

import torch

from generate.language_model import learning_rate


class Task(ABC):
    """A model, its data, and its attention in two forms that mean the same.

    Weights are a dict of tensors, a batch is a tuple of tensors whose first axis counts examples, and `attention` is a value of
    `attentions`, so that a model exists once, whoever computes its attention.
    """

    title: str  # "digits"
    unit: str  # of a loss: "nats a picture"
    steps: int  # of a training, unless others are asked for
    most: float  # the learning rate at its highest
    clip: float | None = None  # the gradient's norm is limited to this
    attentions: dict  # "attend" and "PyTorch" to functions
    held_out: tuple  # examples that are never trained on
    part: int  # so many of them at a time

    @abstractmethod
    def new_weights(self, generator):
        """Weights before the first step."""

    @abstractmethod
    def draw(self, generator):
        """A batch for one step."""

    @abstractmethod
    def losses(self, weights, batch, attention):
        """The loss of each example: (examples)."""

    def new_optimizer(self, weights):
        return torch.optim.AdamW(weights.values(), fused=True)

    def learning_rate(self, step, steps):
        return learning_rate(step, steps, self.most)

    def measures(self, weights, attention):
        """What else is worth knowing of a trained model, by name: a row of the table each."""
        return {}

    def notes(self, weights, attention):
        """Lines of text about what the model has learned."""
        return []
