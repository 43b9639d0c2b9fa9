"""Steps 1 to 5: from a fully connected layer to the general form of a sum over a region of any size."""

import numpy as np

import attend
from ladder_sums import (
    DATA, GIVEN, Comparison, contract, convolve, four_ulp, numbers, picture, plain_convolve, plain_project, plain_sum, real,
    weighted_sum, work,
)


def fully_connected():
    """1  A fully connected layer: y_c = Σ_j W_cj x_j

    Every component of the result is a weighted sum of the inputs. Row c of W is a filter with one weight per input; a layer's
    bias is the weight of one more input, which is always 1.
    """
    def compare(name, W, x):
        return Comparison(name, weighted_sum(W, x), plain_sum(W, x), four_ulp(plain_sum(abs(W), abs(x))))

    for d in (1, 7, 64):
        yield compare(f"one component, inputs: {d}", numbers((1, d), 1), numbers((d, 1), 2))

    # A perceptron of two layers reads 8 x 8 pictures of digits, all 360 in one call: each is one sequence of a batch.
    W_1, W_2, digits = (np.loadtxt(DATA / name) for name in ("perceptron_w_1.txt", "perceptron_w_2.txt", "digits_test.txt"))
    x, digit = np.ones((360, 1, 65, 1)), digits[:, 64]
    x[:, 0, :64, 0] = digits[:, :64] / 16

    def relu_and_one(y):
        return np.concatenate([np.maximum(y, 0), np.ones_like(y[..., :1, :])], axis=-2)

    layer_1 = compare("layer 1 of the perceptron, 32 x 65", W_1, x)
    layer_2 = compare("layer 2 of the perceptron, 10 x 33", W_2, relu_and_one(layer_1.attend))
    yield from (layer_1, layer_2)
    plain_y = plain_sum(W_2, relu_and_one(plain_sum(W_1, x)))  # from the pixels, without a number of attention's
    right, plain_right = ((y.reshape(360, 10).argmax(1) == digit).sum() for y in (layer_2.attend, plain_y))
    yield Comparison("digits read rightly", right, plain_right, 0)
    yield Comparison("the same against all 360, a tenth may be wrong", right, 360, 36)


def convolution():
    """2  A convolution: y(r, c) = Σ F(a, b) x(r + a, c + b)

    Each cell of the result is a weighted sum over a window of the picture. A filter F is a table of weights by offset, a and b
    from -R to R: the same for every cell and for pictures of any size. Outside the picture there is nothing.
    """
    cat = picture().sum(1, keepdims=True) / 3
    for grid in ((1, 1), (7, 5), (64, 64)):
        x = cat if grid == (64, 64) else numbers((grid[0] * grid[1], 1), 2)
        for n in (1, 3, 5):
            F = numbers((2, n, n), 1)
            name = f"two filters {n} x {n} on {grid[0]} x {grid[1]}"
            yield Comparison(name, convolve(F, x, grid), plain_convolve(F, x, grid),
                             four_ulp(plain_convolve(abs(F), abs(x), grid)))

    # The same as a matrix over the picture as a vector: column j answers a picture that is 1 in cell j and else 0. No order of
    # the cells is special: columns and elements that change places together give the same sums.
    F, x, grid = np.array([[[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]]), numbers((35, 1), 2), (7, 5)
    y, bound = plain_convolve(F, x, grid)[0], four_ulp(plain_convolve(abs(F), abs(x), grid)[0])
    band, order = plain_convolve(F, np.eye(35), grid)[0].astype(np.float64), (11 * np.arange(35) + 3) % 35
    yield Comparison("3 x 3 on 7 x 5 as a band matrix, 35 x 35", weighted_sum(band, x), y, bound)
    yield Comparison("the cells in another order", weighted_sum(band[:, order], x[order]), y, bound)

    pairs = plain_convolve(np.ones((1, 3, 3)), np.ones((4096, 1)), (64, 64)).sum()  # ones count the multiplications
    plan = attend.plan((1, 4096, 0), (1, 4096, 0), (1, 4096, 1), "float64", grid=(64, 64), neighborhood=3, relative=F, **GIVEN)
    yield from work("3 x 3 on 64 x 64", pairs, 4096**2, 0.1, plan)


def vectors():
    """3  Elements become vectors: y_c = Σ_j W_cj x_j

    The sums stay what they are; each element is now a row of D numbers, and so is each result. For a layer, row c of W is a
    filter, and it makes one vector y_c out of all the x_j; for a picture, a cell holds red, green and blue.
    """
    for N in (1, 7, 64):  # a perceptron of two layers: N vectors, 9 vectors inside, 3 vectors as the result
        W_1, W_2, X = numbers((9, N), 1), numbers((3, 9), 2), numbers((N, 5), 3)
        Y = weighted_sum(W_1, X)
        H = np.maximum(Y, 0)
        yield Comparison(f"layer 1, N = {N}", Y, plain_sum(W_1, X), four_ulp(plain_sum(abs(W_1), abs(X))))
        yield Comparison(f"layer 2, N = {N}", weighted_sum(W_2, H), plain_sum(W_2, H), four_ulp(plain_sum(abs(W_2), H)))
        x = X[:, 4:]  # one component alone: step 1 on that column
        yield Comparison(f"layer 1 on the last components, N = {N}", weighted_sum(W_1, x), plain_sum(W_1, x),
                         four_ulp(plain_sum(abs(W_1), abs(x))))
    cat, grid = picture(), (64, 64)
    for n in (1, 3, 5):
        F = numbers((1, n, n), 4) ** 2 / 25
        y = plain_convolve(F, cat, grid)  # no number of it is negative, so that it is its own size
        yield Comparison(f"{n} x {n} on 64 x 64 cells of 3 numbers", convolve(F, cat, grid), y, four_ulp(y))


def any_region():
    """4  A region of any size: y = Σ_i (q · x_i) x_i, and the mean

    A filter computes the weight of an element from the element itself, w_i = f_filter(x_i). With f_filter(x) = q · x, the
    components of q are its only parameters, for any number N of elements. Sums grow with N; the mean does not.
    """
    def compare(name, q, X, normalizer):
        w = np.einsum("c,ic->i", q[0].astype(real), X) / (len(X) if normalizer == "mean" else 1)
        size = np.einsum("i,ic->c", abs(w), abs(X))
        return Comparison(name, attend.attention(q, X, X, scale=1, normalizer=normalizer), np.einsum("i,ic->c", w, X)[None],
                          four_ulp(size) if len(X) <= 100 else contract(size, X.dtype))

    q = numbers((1, 3), 1)  # one filter for everything
    for N in (1, 7, 1000):
        X, W = numbers((N, 3), 2), numbers((1, N), 3)
        yield compare(f"sum, N = {N}", q, X, "sum")
        yield compare(f"mean, N = {N}", q, X, "mean")
        yield f"parameters: the filter q {q.size}; a row of W (step 1) {W.size}; a 3 x 3 filter (step 2) 9, and it needs a grid"

    # float32 ends at 3.4e38. A thousand elements near 1e36, whose first component, near 1, becomes their weight:
    X = ((1 + numbers((1000, 3), 4) / 10) * [1, 1e36, 1e36]).astype(np.float32)
    first = np.array([[1, 0, 0]], np.float32)
    with np.errstate(over="ignore"):
        plain = np.einsum("i,ic->c", X[:, 0], X[:, 1:])[None]  # in float32, too
    y = attend.attention(first, X, X, scale=1, normalizer="sum")
    yield Comparison("float32 near 1e36, N = 1000: the sum overflows", y[:, 1:], plain, 0)
    yield compare("float32, the mean of the same", first, X, "mean")


def general_form():
    """5  The general form: y = (1/N) Σ_i f(q, k_i) v_i with k_i = φ_k(x_i), v_i = φ_v(x_i)

    k_i and v_i are bound to one position i. q belongs to the filter. φ_k, φ_v and f do not know N, and no order of the elements
    is special.
    """
    q, W_k, W_v = abs(numbers((1, 4), 1)), numbers((4, 5), 2), numbers((3, 5), 3)
    functions = {
        "dot": ("dot", lambda k: k @ q[0].astype(real)),
        "l1": ("l1", lambda k: -abs(q.astype(real) - k).sum(1)),
        "gaussian": (attend.gaussian(1), lambda k: -((q.astype(real) - k) ** 2).sum(1) / 2),
    }
    for name, (compatibility, f) in functions.items():
        how = {"scale": 1, "compatibility": compatibility, "normalizer": "mean"}
        for N in (1, 7, 100, 1000):
            X = numbers((N, 5), 4)
            K = np.maximum(plain_project(W_k, X), 0).astype(np.float64)  # φ_k
            V = np.tanh(plain_project(W_v, X).astype(np.float64))  # φ_v
            w = f(K) / N
            y, size = np.einsum("i,ic->c", w, V)[None], np.einsum("i,ic->c", abs(w), abs(V))
            bound = four_ulp(size) if N <= 100 else contract(size)
            yield Comparison(f"{name}, N = {N}", attend.attention(q, K, V, **how), y, bound)
            yield Comparison("  the elements in the opposite order", attend.attention(q, K[::-1], V[::-1], **how), y, bound)
