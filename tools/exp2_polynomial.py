"""Coefficients of src/kernels/softmax.inl: 2^f on [0, 1] as 1 + f q(f), minimax in relative error, exact at f = 0.

    python tools/exp2_polynomial.py            # needs mpmath

Remez exchange in 50 digits. Degree 5 errs by 8.3e-8 (float32), degree 10 by 2.3e-16 (float64).
"""
from mpmath import cos, lu_solve, matrix, mp, mpf, nstr, pi

mp.dps = 50


def minimax(degree, grid=4000, exchanges=12):
    """(q, largest relative error) of the best 1 + f q(f) with `degree` coefficients in q."""
    size = degree + 1
    points = [(1 - cos(pi * (2 * i + 1) / (2 * size))) / 2 for i in range(size - 1)] + [mpf(1)]
    for _ in range(exchanges):
        equations, right = matrix(size, size), matrix(size, 1)
        for i, x in enumerate(points):
            for j in range(degree):
                equations[i, j] = x ** (j + 1) / mpf(2) ** x
            equations[i, degree] = (-1) ** i
            right[i] = 1 - mpf(2) ** -x
        q = list(lu_solve(equations, right))[:degree]
        at = [mpf(i) / grid for i in range(grid + 1)]
        error = [(1 + sum(c * x ** (j + 1) for j, c in enumerate(q))) / mpf(2) ** x - 1 for x in at]
        peaks = []
        for i in range(1, grid + 1):
            if abs(error[i]) >= abs(error[i - 1]) and (i == grid or abs(error[i]) >= abs(error[i + 1])):
                if peaks and (peaks[-1][1] > 0) == (error[i] > 0):
                    peaks[-1] = max(peaks[-1], (at[i], error[i]), key=lambda p: abs(p[1]))
                else:
                    peaks.append((at[i], error[i]))
        if len(peaks) < size:
            break
        points = sorted(x for x, _ in sorted(peaks, key=lambda p: -abs(p[1]))[:size])
    return q, max(map(abs, error))


for degree in (5, 10):
    q, error = minimax(degree)
    print(f"degree {degree}, largest relative error {nstr(error, 3)}")
    for power, c in enumerate(q, 1):
        print(f"  f^{power}: {nstr(c, 20)}")
