"""What was expected of a case beside what it reached."""

from __future__ import annotations


def fastest(result: dict) -> tuple[str, dict] | None:
    """The peer with the least time, and its times over those of attend."""
    ratios = {name: ratio for name, ratio in result["ratios"].items() if ratio}
    if not ratios:
        return None
    name = min(ratios, key=lambda name: ratios[name]["median"])
    return name, ratios[name]


def comparisons(result: dict) -> list[dict]:
    """One for each number that was expected and for which there is something measured, and whether it holds."""
    expected, times = result["case"]["expected"], result["times"]
    if not times.get("attend"):
        return []
    found = []

    def compare(what: str, wanted: float, got: float, at_most: bool = False) -> None:
        holds = got <= wanted if at_most else got >= wanted
        found.append({"what": what, "expected": wanted, "reached": got, "at_most": at_most, "holds": holds})

    wanted = expected["of_limit"].get(result["limit"])
    if wanted and result["fraction"]:
        compare(result["limit"], wanted, result["fraction"]["median"])
    for peer, wanted in expected["over"].items():
        if peer == "fastest":
            if best := fastest(result):
                compare("fastest peer", wanted, best[1]["median"])
        elif ratio := result["ratios"].get(peer):
            compare(peer, wanted, ratio["median"])
    if expected["of_none"] and result["overhead"]:
        compare("none", expected["of_none"], result["overhead"]["median"], at_most=True)
    if expected["seconds"]:
        compare("seconds", expected["seconds"], times["attend"]["median"], at_most=True)
    return found
