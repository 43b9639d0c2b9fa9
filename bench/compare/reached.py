"""What was expected of a case beside what it reached."""

from __future__ import annotations


def fastest(result: dict) -> tuple[str, dict] | None:
    """The peer with the least time, and its times over those of attend."""
    ratios = {name: ratio for name, ratio in result["ratios"].items() if ratio}
    if not ratios:
        return None
    name = min(ratios, key=lambda name: ratios[name]["median"])
    return name, ratios[name]


def median(statistics: dict | None) -> float | None:
    return statistics["median"] if statistics else None


def comparisons(result: dict) -> list[dict]:
    """One for each number that was expected: what was reached, and whether that holds; nothing where it was not measured."""
    expected, times = result["case"]["expected"], result["times"]
    if not times.get("attend"):
        return []
    found = []

    def compare(what: str, wanted: float | None, got: float | None, at_most: bool = False) -> None:
        if wanted is None:
            return
        holds = None if got is None else got <= wanted if at_most else got >= wanted
        found.append({"what": what, "expected": wanted, "reached": got, "at_most": at_most, "holds": holds})

    compare(result["limit"], expected["of_limit"].get(result["limit"]), median(result["fraction"]))
    best = fastest(result)
    for peer, wanted in expected["over"].items():
        if peer == "fastest":
            compare("fastest peer", wanted, median(best[1]) if best else None)
        else:
            compare(peer, wanted, median(result["ratios"].get(peer)))
    compare("none", expected["of_none"], median(result["overhead"]), at_most=True)
    compare("seconds", expected["seconds"], median(times["attend"]), at_most=True)
    return found
