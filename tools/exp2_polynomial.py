"""Coefficients of src/kernels/exponential.inl, minimax in relative error on [0, 1].

    python tools/exp2_polynomial.py            # needs mpmath

`exp2`: 2^f as 1 + f q(f), exact at f = 0. `expm1`: 2^f - 1 as f q(f), which keeps its relative error down to f = 0 and so serves tanh.
Remez exchange in 50 digits. The largest errors are printed with the coefficients.
"""
from mpmath import cos, log, lu_solve, matrix, mp, mpf, nstr, pi

mp.dps = 50


def minimax(terms, term, target, grid=4000, exchanges=12):
    """(c, largest error) of the best sum_j c_j term(x, j) for target(x), with `terms` coefficients."""
    size = terms + 1
    points = [(1 - cos(pi * (2 * i + 1) / (2 * size))) / 2 for i in range(size - 1)] + [mpf(1)]
    at = [mpf(i) / grid for i in range(grid + 1)]
    for _ in range(exchanges):
        equations, right = matrix(size, size), matrix(size, 1)
        for i, x in enumerate(points):
            for j in range(terms):
                equations[i, j] = term(x, j)
            equations[i, terms] = (-1) ** i
            right[i] = target(x)
        c = list(lu_solve(equations, right))[:terms]
        error = [sum(c_j * term(x, j) for j, c_j in enumerate(c)) - target(x) for x in at]
        peaks = []
        for i in range(grid + 1):
            left, after = abs(error[max(i - 1, 0)]), abs(error[min(i + 1, grid)])
            if abs(error[i]) >= left and abs(error[i]) >= after:
                if peaks and (peaks[-1][1] > 0) == (error[i] > 0):
                    peaks[-1] = max(peaks[-1], (at[i], error[i]), key=lambda p: abs(p[1]))
                else:
                    peaks.append((at[i], error[i]))
        if len(peaks) < size:
            break
        points = sorted(x for x, _ in sorted(peaks, key=lambda p: -abs(p[1]))[:size])
    return c, max(map(abs, error))


def over_expm1(x, j):
    """x^(j+1) / (2^x - 1), and its limit at 0."""
    return x ** (j + 1) / (mpf(2) ** x - 1) if x else (1 / log(2) if j == 0 else mpf(0))


FITS = {"exp2": ((5, 10), lambda x, j: x ** (j + 1) / mpf(2) ** x, lambda x: 1 - mpf(2) ** -x),
        "expm1": ((6, 11), over_expm1, lambda x: mpf(1))}

for name, (sizes, term, target) in FITS.items():
    for terms in sizes:
        q, error = minimax(terms, term, target)
        print(f"{name}, {terms} coefficients, largest relative error {nstr(error, 3)}")
        for power, c in enumerate(q, 1):
            print(f"  f^{power}: {nstr(c, 20)}")
