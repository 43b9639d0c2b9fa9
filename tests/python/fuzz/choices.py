"""Draws of the fuzzer, each with a number of its own.

Hypothesis spends most of a run on neighbours of a drawn example, in which two draws of one strategy have been made equal. Calls
of attention have little to gain from that and much from being new, so every draw of an example is a strategy of its own.
"""

from functools import lru_cache

from hypothesis import strategies as st


@lru_cache(maxsize=None)
def nth_choice(number, count):
    return st.sampled_from([(number, n) for n in range(count)])


class Choices:
    def __init__(self, draw):
        self.draw, self.number = draw, 0

    def of(self, *values):
        """One of the values; shrinks to the first."""
        self.number += 1
        return values[self.draw(nth_choice(self.number, len(values)))[1]]

    def rarely(self, times):
        """True once in so many times; shrinks to False."""
        return self.of(*[False] * (times - 1), True)

    def below(self, end):
        return self.of(*range(end))

    def seed(self):
        return self.below(100)
