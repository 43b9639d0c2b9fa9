"""A differential fuzzer: calls that hypothesis draws, against the contract evaluated densely and against each other.

`python -m fuzz` from tests/python runs it on every instruction set of this machine; tests/python/test_fuzz.py is the short run.
Read in this order: `program` (a call as Python text), `strategies` with `sizes`, `arrays` and `options` (which calls),
`definition` (what they mean), `bounds` (how far off they may be), `properties` and `packed` (other ways to say the same),
`session` (a run, and what it has to have covered).
"""
