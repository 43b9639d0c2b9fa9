"""Options and fixtures of the Python tests. `--peers` adds what needs other systems; without it those tests are skipped by name."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--peers", action="store_true", help="also compare with PyTorch, JAX, ONNX Runtime and others, which must then be installed")


def pytest_configure(config):
    config.addinivalue_line("markers", "peers: needs other systems; runs with --peers")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--peers"):
        return
    skip = pytest.mark.skip(reason="needs other systems; run with --peers")
    for item in items:
        if "peers" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def torch():
    """PyTorch, for tests marked `peers`: with --peers, its absence is a failure and no skip."""
    import torch

    return torch
