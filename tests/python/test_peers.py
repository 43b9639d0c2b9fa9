"""Live comparison with PyTorch, with --peers: same inputs, both measured against float64."""

import itertools

import numpy as np
import pytest

import attend
from reference import BOUND, DTYPES, attention, causal

pytestmark = pytest.mark.peers

SHAPES = [  # B, H, Hk, L, S, E, Ev
    (1, 1, 1, 1, 1, 1, 1), (2, 3, 3, 17, 17, 8, 8), (1, 4, 2, 64, 64, 64, 64), (2, 8, 2, 1, 300, 64, 64), (1, 2, 1, 5, 129, 33, 7),
    (2, 12, 12, 197, 197, 64, 64), (1, 2, 2, 256, 77, 40, 40), (1, 2, 2, 130, 515, 96, 128), (1, 1, 1, 1000, 31, 16, 16),
]
WAYS = ("plain", "causal", "bool", "float", "per_key", "scale")


def test_the_version_is_the_one_that_the_contract_was_measured_with(torch):
    assert torch.__version__.split("+")[0] == "2.13.0"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, way", list(itertools.product(SHAPES, WAYS)), ids=str)
def test_errors_are_within_the_bound_and_no_worse_than_pytorchs(torch, shape, way, dtype):
    B, H, Hk, L, S, E, Ev = shape
    rng = np.random.default_rng([*shape, WAYS.index(way)])
    q, k, v = (torch.from_numpy(rng.standard_normal(s)).to(getattr(torch, dtype)) for s in ((B, H, L, E), (B, Hk, S, E), (B, Hk, S, Ev)))
    options, plain = {"enable_gqa": H != Hk}, {}
    if way == "causal":
        options["is_causal"], plain["mask"] = True, causal(L, S)
    elif way == "bool":
        plain["mask"] = rng.random((L, S)) < 0.7
        plain["mask"][:, 0] = True
        options["attn_mask"] = torch.from_numpy(plain["mask"])
    elif way == "per_key":
        plain["mask"] = rng.random((B, 1, 1, S)) < 0.7
        plain["mask"][..., 0] = True
        options["attn_mask"] = torch.from_numpy(plain["mask"])
    elif way == "float":
        options["attn_mask"] = torch.from_numpy(rng.standard_normal((H, L, S))).to(q.dtype)
        plain["bias"] = options["attn_mask"].double().numpy()
    elif way == "scale":
        options["scale"] = plain["scale"] = -0.4
    truth = attention(*(x.double().numpy() for x in (q, k, v)), **plain)[0]
    error = lambda y: np.abs(y.double().numpy() - truth).max(initial=0)
    theirs = error(torch.nn.functional.scaled_dot_product_attention(q, k, v, **options))
    y = attend.scaled_dot_product_attention(q, k, v, **options)
    assert type(y) is torch.Tensor and y.dtype is q.dtype
    assert error(y) <= max(BOUND[dtype] * float(v.abs().max()), 1.5 * theirs)


def test_where_pytorch_leaks_or_reads_too_far_we_do_not(torch):
    q, k, v = (torch.randn(1, 1, 4, 8) for _ in range(3))
    mask = torch.tensor([True, True, False, True])
    poisoned = v.clone()
    poisoned[:, :, 2] = torch.nan
    assert torch.equal(attend.scaled_dot_product_attention(q, k, poisoned, attn_mask=mask),
                       attend.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    with pytest.raises(ValueError, match="value: .*4.*5"):
        attend.scaled_dot_product_attention(q, k, torch.randn(1, 1, 5, 8))
    empty = attend.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(4, dtype=torch.bool))
    assert torch.equal(empty, torch.zeros_like(q))
