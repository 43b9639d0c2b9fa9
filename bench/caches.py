#!/usr/bin/env python3
"""Decoding over caches, measured against this machine's limits: the tables of docs/caches.md.

    python bench/caches.py [--rounds N] [--threads N] [--update-docs docs/caches.md]

Everything of a row is measured in the same rounds: the limits, then each way to hold the cache, cold, one after the other. A row's limit is the larger of
the time to read the cache's bytes and that of the multiply-adds of float32. Tables give medians over rounds of ratios taken within one.
"""

import argparse
import pathlib
import statistics
import sys
import time

import numpy as np

import attend
from attend import _core

HEADS, WIDTH = 32, 128
KV_HEADS = {"group 1": 32, "group 4": 8, "group 16": 2}
COLD_BYTES = 1 << 29  # caches that one sample goes through
WAYS = {"f32": ("float32", None), "bf16": ("bfloat16", None), "f16": ("float16", None), "int8": ("float16", "int8"),
        "int4": ("float16", "int4")}
BEGIN, END = "<!-- caches: begin -->", "<!-- caches: end -->"


def numpy_type(name):
    if name == "bfloat16":
        import ml_dtypes
        return ml_dtypes.bfloat16
    return name


def row_bytes(way):
    return {"f32": 4 * WIDTH, "bf16": 2 * WIDTH, "f16": 2 * WIDTH, "int8": WIDTH + WIDTH // 16, "int4": WIDTH // 2 + WIDTH // 8}[way]


def random(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(numpy_type(dtype))


class Cold:
    """Calls over so many caches that none is met again while a processor still holds it."""

    def __init__(self, make, bytes_of_one):
        self.calls = [make() for _ in range(max(2, -(-COLD_BYTES // bytes_of_one)))]
        self.next = 0

    def seconds(self):
        """The mean time of a call, over at least 20 ms of them."""
        count, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < 0.02:
            self.calls[self.next % len(self.calls)]()
            self.next, count = self.next + 1, count + 1
        return spent / count


def contiguous(way, tokens, kv_heads, queries, threads):
    dtype, codes = WAYS[way]
    q, part = random((1, HEADS, queries, WIDTH), dtype), random((1, kv_heads, 512, WIDTH), dtype, 1)

    def make():
        cache = attend.KVCache(1, kv_heads, tokens, WIDTH, dtype=dtype, quantized=codes)
        for _ in range(tokens // 512):
            cache.append(part, part)
        return lambda: attend.decode(q, cache, threads=threads)

    return Cold(make, 2 * tokens * kv_heads * row_bytes(way))


def paged(dtype, page_size, tokens, kv_heads, threads):
    q, part = random((1, HEADS, 1, WIDTH), dtype), random((kv_heads, 512, WIDTH), dtype, 1)

    def make():
        cache = attend.PagedKVCache(-(-tokens // page_size), page_size, kv_heads, WIDTH, dtype=dtype)
        one = cache.new_sequence()
        for _ in range(tokens // 512):
            cache.append(one, part, part)
        return lambda: attend.decode(q, cache, sequences=[one], threads=threads)

    return Cold(make, 2 * tokens * kv_heads * WIDTH * np.dtype(numpy_type(dtype)).itemsize)


def forks(dtype, shared, tokens, sequences, kv_heads, threads):
    """Sequences with the same prefix, in the pages of one or each in its own."""
    q, part = random((sequences, HEADS, 1, WIDTH), dtype), random((kv_heads, 512, WIDTH), dtype, 1)
    cache = attend.PagedKVCache(sequences * (tokens // 16 + 1), 16, kv_heads, WIDTH, dtype=dtype)

    def started():
        one = cache.new_sequence()
        for _ in range(tokens // 512):
            cache.append(one, part, part)
        return one

    ids = [started()] if shared else [started() for _ in range(sequences)]
    ids += [cache.fork(ids[0]) for _ in range(sequences - len(ids))]
    for one in ids:
        cache.append(one, part[:, :1], part[:, :1])
    return Cold(lambda: lambda: attend.decode(q, cache, sequences=ids, threads=threads), COLD_BYTES)


def rounds_of(contenders, rounds, threads):
    """Per round, seconds of each contender, bytes/s and flop/s."""
    for one in contenders.values():
        one.seconds()
    for _ in range(rounds):
        seconds = {name: one.seconds() for name, one in contenders.items()}
        yield seconds, _core.read_bandwidth(threads), _core.fma_rate("float32", threads, None)["flops"]


def table_of_types(rounds, threads):
    lines = ["| keys, group, queries | " + " | ".join(f"{way} ms (GB/s, of the limit)" for way in WAYS) + " | int8 over bf16 |",
             "|---|" + "--:|" * (len(WAYS) + 1)]
    for tokens in (2048, 8192, 32768):
        for group, queries in (("group 1", 1), ("group 4", 1), ("group 4", 4), ("group 16", 1)):
            kv_heads = KV_HEADS[group]
            contest = {way: contiguous(way, tokens, kv_heads, queries, threads) for way in WAYS}
            samples = {way: [] for way in WAYS}
            ratios = []
            for seconds, read, flops in rounds_of(contest, rounds, threads):
                for way, spent in seconds.items():
                    moved = 2 * tokens * kv_heads * row_bytes(way)
                    limit = max(moved / read, 4 * HEADS * queries * tokens * WIDTH / flops)
                    samples[way].append((spent * 1e3, moved / spent * 1e-9, limit / spent))
                ratios.append(seconds["bf16"] / seconds["int8"])
            cells = []
            for way in WAYS:
                ms, rate, part = (statistics.median(column) for column in zip(*samples[way]))
                cells.append(f"{ms:.2f} ({rate:.1f}, {part:.2f})")
            lines.append(f"| {tokens}, {group}, {queries} | " + " | ".join(cells) + f" | {statistics.median(ratios):.2f} |")
            print(lines[-1], flush=True)
    return lines


def table_of_pages(rounds, threads):
    lines = ["| 8192 keys, group 4, one query | f32 | bf16 |", "|---|--:|--:|"]
    cells = {}
    for dtype, way in (("float32", "f32"), ("bfloat16", "bf16")):
        contest = {"contiguous": contiguous(way, 8192, 8, 1, threads)}
        contest |= {f"pages of {size}": paged(dtype, size, 8192, 8, threads) for size in (16, 64, 256)}
        ratios = {name: [] for name in contest}
        for seconds, _, _ in rounds_of(contest, rounds, threads):
            for name, spent in seconds.items():
                ratios[name].append(spent / seconds["contiguous"])
        cells[way] = {name: statistics.median(list_) for name, list_ in ratios.items()}
    for name in cells["f32"]:
        lines.append(f"| {name}, time over contiguous | {cells['f32'][name]:.2f} | {cells['bf16'][name]:.2f} |")
    print("\n".join(lines), flush=True)
    return lines


def table_of_prefixes(rounds, threads):
    lines = ["| 8 sequences, prefix of 8192 | each reads its own: ms | shared: ms | times faster |", "|---|--:|--:|--:|"]
    for dtype in ("float32", "bfloat16"):
        for group in ("group 1", "group 4"):
            contest = {"own": forks(dtype, False, 8192, 8, KV_HEADS[group], threads),
                       "shared": forks(dtype, True, 8192, 8, KV_HEADS[group], threads)}
            all_ = [seconds for seconds, _, _ in rounds_of(contest, rounds, threads)]
            own, shared = (statistics.median(one[name] for one in all_) * 1e3 for name in ("own", "shared"))
            ratio = statistics.median(one["own"] / one["shared"] for one in all_)
            lines.append(f"| {dtype}, {group} | {own:.1f} | {shared:.1f} | {ratio:.1f} |")
    print("\n".join(lines), flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=attend.info()["threads"])
    parser.add_argument("--update-docs", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads: expected at least 1")
    if options.update_docs and not (options.update_docs.is_file() and BEGIN in options.update_docs.read_text()):
        parser.error(f"--update-docs: expected a document with {BEGIN} and {END}, got {options.update_docs}")
    lines = [f"{HEADS} heads of width {WIDTH}, {options.threads} threads, {attend.info()['instruction_sets']['detected'][-1]}, "
             f"{options.rounds} rounds; q in float16 beside int8 and int4.", ""]
    for table in (table_of_types, table_of_pages, table_of_prefixes):
        lines += [*table(options.rounds, options.threads), ""]
    if options.update_docs:
        text = options.update_docs.read_text()
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        options.update_docs.write_text(text[:begin] + "\n" + "\n".join(lines) + text[end:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
