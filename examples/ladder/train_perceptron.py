#!/usr/bin/env python3
"""Trains the perceptron of step 1 on scikit-learn's digits and writes its weights and the pictures it never saw.

    pip install scikit-learn==1.9.1
    python train_perceptron.py

The last 360 of the 1797 pictures are kept for the test. The bias of a layer is the last column of its matrix: the weight of
an input that is always 1.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

DATA = Path(__file__).resolve().parent / "data"
TEST = 360


def with_bias(weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """One row per component of the result, the bias last."""
    return np.column_stack([weights.T, bias])


def main() -> None:
    digits = load_digits()
    x, digit = digits.data / 16, digits.target
    model = MLPClassifier(hidden_layer_sizes=(32,), activation="relu", alpha=1e-2, max_iter=2000, random_state=0)
    model.fit(x[:-TEST], digit[:-TEST])
    print(f"accuracy on {TEST} pictures that were not trained on: {model.score(x[-TEST:], digit[-TEST:]):.4f}")

    for name, weights, bias in zip(("w_1", "w_2"), model.coefs_, model.intercepts_, strict=True):
        matrix = with_bias(weights, bias)
        rows, columns = matrix.shape
        header = f"{rows} x {columns}: a layer of the perceptron, a row per component of its result, the bias last"
        np.savetxt(DATA / f"perceptron_{name}.txt", matrix, fmt="%.5f", header=header)
    header = f"{TEST} x 65: a picture of 8 x 8 pixels from 0 to 16 a line, then the digit it shows"
    np.savetxt(DATA / "digits_test.txt", np.column_stack([digits.data, digit])[-TEST:], fmt="%d", header=header)


if __name__ == "__main__":
    main()
