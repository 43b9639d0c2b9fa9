"""Steps 6 to 10: from the common form of attention to many heads."""

import time

import numpy as np

import attend
from ladder_sums import Comparison, contract, four_ulp, numbers, plain_project, project, real, work


def plain_softmax(scores, V):
    """Σ_j softmax_j(s_ij) v_j for every row of scores; 0 where nothing is allowed."""
    w = np.exp(scores.astype(real))
    total = w.sum(-1, keepdims=True)
    return np.einsum("ij,jd->id", w / np.where(total == 0, 1, total), V)


def dots(Q, K):
    return np.einsum("ic,jc->ij", Q.astype(real), K)


def common_form():
    """6  The common form: y = Σ_i softmax_i(f(W_Q a, W_K b_i)) W_V b_i

    The filter comes from a domain A, the elements from a domain B, of other widths; three matrices make them meet: q = W_Q a,
    k_i = W_K b_i, v_i = W_V b_i. A softmax makes the weights positive, and their sum 1.
    """
    W_Q, W_K, W_V, W = numbers((4, 5), 1), numbers((4, 7), 2), numbers((3, 7), 3), numbers((4, 4), 4)
    a, u = numbers((1, 5), 5), numbers((4,), 6)
    q, q_W = project(W_Q, a), project(W.T, project(W_Q, a))
    functions = {
        "dot": ("dot", lambda q, k: (q * k).sum(1) / 2),  # √d = 2
        "cosine": ("cosine", lambda q, k: (q * k).sum(1) / np.sqrt((q**2).sum(1) * (k**2).sum(1))),
        "l1": ("l1", lambda q, k: -abs(q - k).sum(1)),
        "none": ("none", lambda q, k: 0 * k[:, 0]),
        "gaussian": (attend.gaussian(1), lambda q, k: -((q - k) ** 2).sum(1) / 2),
        "additive": (attend.additive(u), lambda q, k: (u * np.tanh(q + k)).sum(1)),
    }
    for N in (1, 7, 50):
        B = numbers((N, 7), 7)
        K, V = project(W_K, B), project(W_V, B)
        yield Comparison(f"k_i = W_K b_i, N = {N}", K, plain_project(W_K, B), four_ulp(plain_project(abs(W_K), abs(B))))
        for name, (compatibility, f) in functions.items():
            yield Comparison(f"{name}, N = {N}", attend.attention(q, K, V, compatibility=compatibility),
                             plain_softmax(f(q.astype(real), K.astype(real))[None], V), contract(abs(V).max()))
        yield Comparison(f"bilinear q W k = (W^T q) k, N = {N}", attend.attention(q_W, K, V),
                         plain_softmax(dots(q, plain_project(W, K)) / 2, V), contract(abs(V).max()))
    e, across = np.array([[1.0, 0, 2, 0]]), np.array([[0.0, 3, 0, -1]])
    score = attend.attention(e, across, np.eye(1), normalizer="sum")
    yield Comparison("score of vectors at right angles", score, dots(e, across), 0)

    # Why 1/√d: the variance of scores grows with d, and the softmax comes to take one element and leave the others.
    ones = np.eye(100)  # as values: the result is the weights
    for d in (1, 4, 16, 64, 256):
        Q, K = numbers((100, d), 8), numbers((100, d), 9)
        scores = attend.attention(Q, K, ones, scale=1, normalizer="sum")
        sharp, soft = attend.attention(Q, K, ones, scale=1), attend.attention(Q, K, ones)
        yield Comparison(f"d = {d}: variance of the scores, about d", (scores**2).mean(), d, d / 4)
        for what, weights, scale in (("q·k", sharp, 1), ("q·k/√d", soft, real(d) ** -0.5)):
            yield Comparison(f"d = {d}: largest weight, of {what}", weights.max(1).mean(),
                             plain_softmax(dots(Q, K) * scale, ones).max(1).mean(), contract(1))
    yield Comparison("without the scale, one of 100 takes nearly all", sharp.max(1).mean(), 1, 0.2)
    yield Comparison("with it, none does", soft.max(1).mean(), 0, 0.1)


def matrix_form():
    """7  The matrix form: Y = SoftMax(Mask(Q K^T / √d_k)) V

    M vectors of A are M filters on one region: queries are the n = M rows of Q (n x d_k), keys and values of the m elements
    those of K (m x d_k) and V (m x d_v). Row i of Y is what step 6 makes of query i alone; the call never holds the n x m
    scores.
    """
    for n, m in ((1, 1), (7, 9), (33, 101)):
        for dtype in ("float64", "float32"):
            Q, K, V = (numbers(*what).astype(dtype) for what in (((n, 4), 1), ((m, 4), 2), ((m, 3), 3)))
            mask, bound = numbers((n, m), 4) < 1, contract(abs(V).max(), dtype)

            matmul = np.einsum("ic,jc->ij", Q.astype(real), K)
            scaled = matmul / np.sqrt(real(Q.shape[1]))
            masked = np.where(mask, scaled, -np.inf)
            total = np.exp(masked).sum(1, keepdims=True)
            softmax = np.exp(masked) / np.where(total > 0, total, 1)  # nothing allowed: nothing comes
            Y = np.einsum("ij,jd->id", softmax, V)
            yield "MatMul {}, Scale {}, Mask {}, SoftMax {}, MatMul {}".format(
                *("{} x {}".format(*stage.shape) for stage in (matmul, scaled, masked, softmax, Y)))

            def one_by_one(**how):
                return np.concatenate([attend.attention(Q[i : i + 1], K, V, mask=mask[i : i + 1], **how) for i in range(n)])

            yield Comparison(f"all {n} at once, {dtype}", attend.attention(Q, K, V, mask=mask), Y, bound)
            yield Comparison(f"{n} single calls, {dtype}", one_by_one(), Y, bound)
            yield Comparison("single calls and all at once, reproducible", one_by_one(reproducible=True),
                             attend.attention(Q, K, V, mask=mask, reproducible=True), None)


def masks():
    """8  Masks: booleans, -inf and structures

    An excluded element takes no part in the row's sum: y_i = Σ_{j in A(i)} w_ij v_j. Booleans, a bias of -inf and a structure
    say the same and give the same bits; the structure also saves work, known without a look at every pair.
    """
    T = 35  # queries and elements, or the cells of a grid of 7 x 5
    Q, K, V = numbers((T, 9), 1), numbers((T, 9), 2), numbers((T, 3), 3)
    i, j = np.arange(T)[:, None], np.arange(T)
    bound = contract(abs(V).max())
    for name, how, mask in (
        ("j <= i", {"causal": True}, j <= i),
        ("i - 5 <= j <= i + 2", {"window": (5, 2)}, (i - 5 <= j) & (j <= i + 2)),
        ("j < 19", {"key_lengths": 19}, np.broadcast_to(j < 19, (T, T))),
        ("3 x 3 cells of 7 x 5", {"grid": (7, 5), "neighborhood": 3}, (abs(i // 5 - j // 5) <= 1) & (abs(i % 5 - j % 5) <= 1)),
    ):
        Y = attend.attention(Q, K, V, **how)
        plain = np.concatenate([plain_softmax(dots(Q[[r]], K[mask[r]]) / 3, V[mask[r]]) for r in range(T)])  # √d = 3
        left_out = np.concatenate([attend.attention(Q[[r]], K[mask[r]], V[mask[r]]) for r in range(T)])
        yield Comparison(f"{name}, masked", Y, plain, bound)
        yield Comparison(f"{name}, left out", left_out, plain, bound)
        yield Comparison("  structure and booleans", attend.attention(Q, K, V, mask=mask), Y, None)
        yield Comparison("  structure and -inf", attend.attention(Q, K, V, bias=np.where(mask, 0, -np.inf)), Y, None)

    # Attention among the pixels of a picture. What lies more than 3 rows or columns away is left out, with its work.
    x, near, r = numbers((1, 4096, 64), 4).astype(np.float32), {"grid": (64, 64), "neighborhood": 7}, np.arange(64)
    pairs = (np.minimum(63, r + 3) - np.maximum(0, r - 3) + 1).sum() ** 2
    yield from work("7 x 7 of 64 x 64 pixels", pairs, 4096**2, 0.2, attend.plan(x.shape, x.shape, x.shape, x.dtype, **near))
    yield "all pairs {:.4g} ms, 7 x 7 {:.4g} ms".format(*(milliseconds(x, how) for how in ({}, near)))


def milliseconds(x, how):
    """Milliseconds of a call, the shortest of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        attend.attention(x, x, x, **how)
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def causal_self_attention():
    """9  Causal self-attention: y_i = Σ_{j <= i} softmax_{j <= i}(q_i · k_j / √d) v_j

    Filters and elements come from one sequence x_1 … x_T: T filters, T elements, q_i = W_Q x_i, k_j = W_K x_j, v_j = W_V x_j.
    The region of position i ends at i. One position at a time is a sum over a region that grows; all at once are a matrix and
    a triangle.
    """
    W = numbers((8, 12), 1) / 4, numbers((8, 12), 2) / 4, numbers((5, 12), 3)
    for T in (1, 7, 100, 333):
        X = numbers((T, 12), 4)
        Q, K, V = (project(w, X) for w in W)
        q, k, v = (plain_project(w, X) for w in W)
        y = np.concatenate([plain_softmax(dots(q[i : i + 1], k[: i + 1]) / np.sqrt(real(8)), v[: i + 1]) for i in range(T)])
        Y, bound = attend.attention(Q, K, V, causal=True), contract(abs(V).max())
        yield Comparison(f"all positions at once, T = {T}", Y, y, bound)
        one_by_one = [attend.attention(Q[i : i + 1], K[: i + 1], V[: i + 1]) for i in range(T)]
        yield Comparison(f"one position at a time, T = {T}", np.concatenate(one_by_one), y, bound)

        other = np.concatenate([X[: T // 2], numbers((T, 12), 5)[T // 2 :]])  # another end: the rows before it keep their bits
        if T > 1:
            changed = attend.attention(*(project(w, other) for w in W), causal=True)
            yield Comparison(f"y_1 to y_{T // 2} with another end of x", changed[: T // 2], Y[: T // 2], None)


def many_heads():
    """10  Many heads: O_h = Attention(X W_Q^h, X W_K^h, X W_V^h), Y = [O_1 … O_8] W_O^T

    Step 7 runs h = 8 times on the same sequence, each time with matrices of its own; a last matrix joins their results. This is
    the multi-head attention of Vaswani et al., Attention Is All You Need, 2017: 8 heads of 64 on a width of 512.
    """
    W_Q, W_K, W_V, W_O = (numbers((512, 512), seed) / np.sqrt(512) for seed in (1, 2, 3, 4))
    for T in (1, 13):
        X = numbers((T, 512), 5)
        O, o = [], []
        for h in range(8):  # the matrices of head h are 64 rows of the whole ones
            W = [w[64 * h : 64 * h + 64] for w in (W_Q, W_K, W_V)]
            q, k, v = (plain_project(w, X) for w in W)
            O.append(attend.attention(*(project(w, X) for w in W)))
            o.append(plain_softmax(dots(q, k) / 8, v))  # √64 = 8
            yield Comparison(f"O_{h + 1}, T = {T}", O[-1], o[-1], contract(abs(v).max()))
        O, o = np.concatenate(O, axis=1), np.concatenate(o, axis=1)
        size = plain_project(abs(W_O), abs(o))
        yield Comparison(f"Y = O W_O^T, T = {T}", project(W_O, O), plain_project(W_O, o), contract(size))
        # All heads in one call: each reads its 64 columns of the whole matrices.
        q, k, v = (project(w, X).reshape(T, 8, 64) for w in (W_Q, W_K, W_V))
        at_once = attend.attention(q, k, v, layout="blhd").reshape(T, 512)
        yield Comparison("O of 8 heads in one call and of 8 calls", at_once, O, None)
