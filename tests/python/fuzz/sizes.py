"""Shapes around the lanes, tiles and chunks of the kernels that will run."""

from dataclasses import dataclass

import attend
import reference

FEW_ROWS = 16  # queries x heads of a group that the kernel for few queries takes


@dataclass(frozen=True)
class Kernel:
    lanes: int
    tile: int
    chunk: int


def kernel_of(dtype, rows):
    plan = attend.plan((rows, 4), (9, 4), (9, 4), dtype)
    return Kernel(plan["lanes"], plan["tile_keys"], plan["chunk_keys"])


FEW, MANY = ({dtype: kernel_of(dtype, rows) for dtype in reference.DTYPES} for rows in (1, 100))


@dataclass
class Sizes:
    batch: tuple
    heads: int
    kv_heads: int
    queries: int
    keys: int
    width: int
    value_width: int
    kernel: Kernel
    matrices: bool = False
    grid: tuple | None = None


def draw_keys(choose, kernel, long):
    tile, chunk = kernel.tile, kernel.chunk
    more = choose.of(1, 7, tile - 1, tile, tile + 1, 2 * tile, 2 * tile + 1, 33, 3 * tile - 1, 31)
    if not long:
        return more
    return chunk + (choose.of(chunk, chunk + 1, chunk // 2 + 3) if choose.rarely(6) else more)


def draw_rows(choose, lanes):
    return max(1, choose.of(lanes, 2 * lanes, lanes // 2, 3 * lanes) + choose.of(0, 1, -1))


def draw_sizes(choose, dtype):
    """Sizes of a call on arrays with batch axes."""
    kind, long = choose.of(*("few", "many") * 6, "tiny", "grid", "crowd"), choose.of(False, *[True] * 8)
    group, kv_heads, batch = choose.of(1, 2, 1, 3, 4, 8), choose.of(1, 2), choose.of((), (2,), (), (1,), (1, 2), (2, 1), (3,))
    few, many = FEW[dtype], MANY[dtype]
    if kind == "tiny":
        batch, kv_heads = choose.of((), (2,), (1, 3), (0,), (2, 2)), choose.of(1, 2, 3, 0)
        size = Sizes(batch, kv_heads * group, kv_heads, *(choose.below(9) for _ in range(4)), few)
    elif kind == "grid":
        rows, columns = choose.of((1, 7), (4, 5), (6, 9), (13, 8), (9, 1), (3, 33), (2, 49), (11, 12))
        size = Sizes(choose.of((), (2,)), kv_heads * group, kv_heads, rows * columns, rows * columns, choose.of(4, 3, 8),
                     choose.of(3, 4, 5), many, grid=(rows, columns))
    elif kind == "crowd":  # so many blocks that each folds its own chunks
        size = Sizes(choose.of((33,), (5, 13), (65,)), 2, choose.of(2, 1), 1, draw_keys(choose, few, long), choose.of(1, 3),
                     choose.of(1, 4), few)
    elif kind == "few":
        queries = min(choose.of(1, 2, 16, 3, 5), FEW_ROWS // group)
        size = Sizes(batch, kv_heads * group, kv_heads, queries, draw_keys(choose, few, long),
                     choose.of(1, 8, 5, 16, 17, 33, 64, 3, 2), choose.of(1, 4, 7, 16, 17, 33, 2), few)
    else:
        if long:
            batch, rows = batch if kv_heads == 1 else (), choose.of(FEW_ROWS + 1, FEW_ROWS + 3, 31, 33)
        else:
            rows = draw_rows(choose, many.lanes)
        size = Sizes(batch, kv_heads * group, kv_heads, -(-rows // group), draw_keys(choose, many, long),
                     choose.of(1, 4, 3, 8, 17, 33), choose.of(1, 3, 4, 5, 8, 17), many)
    if size.batch == () and size.heads == 1:
        size.matrices = choose.rarely(4)
    return size


def draw_lengths(choose, dtype):
    """Queries and keys of packed sequences, the kernel of the longest, and a grid where all are cells of one."""
    kernel, count = choose.of(FEW, MANY)[dtype], choose.of(1, 2, 3, 4, 2, 3, 0)
    if choose.rarely(8):
        return [(20, 20)] * max(count, 1), MANY[dtype], (4, 5)
    few = kernel == FEW[dtype]
    lengths = []
    for n in range(count):
        queries = choose.of(1, 2, 0, 5) if few else choose.of(5, FEW_ROWS + 1, 0, 1, kernel.lanes + 1)
        keys = draw_keys(choose, kernel, n == 0 and choose.of(False, *[True] * 5)) if not choose.rarely(6) else 0
        lengths.append((min(queries, 33) if keys > kernel.chunk else queries, keys))
    return lengths, kernel, None
