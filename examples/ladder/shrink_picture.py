#!/usr/bin/env python3
"""Writes the colour picture of 64 x 64 pixels that the steps on images read: a square of scikit-image's cat Chelsea.

    pip install scikit-image
    python shrink_picture.py
"""

from pathlib import Path

import numpy as np
from skimage import data, transform

CELLS = 64


def main() -> None:
    square = data.chelsea()[:, 75:375]
    picture = np.rint(255 * transform.resize(square, (CELLS, CELLS), anti_aliasing=True)).astype(int)
    header = f"{CELLS} x {3 * CELLS}: a row of pixels a line, red, green and blue of each from 0 to 255"
    target = Path(__file__).resolve().parent / "data" / "cat.txt"
    np.savetxt(target, picture.reshape(CELLS, 3 * CELLS), fmt="%d", header=header)


if __name__ == "__main__":
    main()
