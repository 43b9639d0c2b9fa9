"""Trains small models from scratch through attend, and beside it the same models through PyTorch's own attention: `./dev train`."""
