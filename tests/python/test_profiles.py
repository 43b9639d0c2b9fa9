"""docs/profiles.md and the tests that hold it name each other, and every call on the page has options that exist."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import attend

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "profiles.md"
FILES = sorted(HERE.glob("test_profiles_*.py"))


def sections():
    """(title, text) of every part of the page that begins with ##."""
    for text in PAGE.read_text().split("\n## ")[1:]:
        yield text.split("\n", 1)


def rows(text):
    """The cells of every line of a section's table, without its head."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")][1:]


def names_in(path):
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_line_is_held_by_a_test_or_its_section_says_where_it_is_from():
    held = 0
    for title, text in sections():
        named = re.findall(r"Held by\s+\[(test_profiles_\w+\.py)\]", text)
        if not named:
            assert text.lstrip().startswith("Not run here. Source") and "](https://" in text, title
            assert all(len(row) == 3 for row in rows(text)), title
            continue
        known = names_in(HERE / named[0])
        for row in rows(text):
            assert len(row) == 4 and row[3].strip("`") in known, (title, row)
            held += 1
    assert held > 40


def test_every_test_is_on_the_page():
    page = PAGE.read_text()
    assert len(FILES) == 4
    for path in FILES:
        assert {name for name in names_in(path) if f"`{name}`" not in page} == set(), path.name


def parameters(function):
    """Names of a function's parameters, by its signature or the first line of its text."""
    try:
        return set(inspect.signature(function).parameters)
    except ValueError:
        return set(re.findall(r"\w+", function.__doc__.split("->")[0]))


def test_every_option_in_the_column_of_attend_exists():
    known = parameters(attend.attention)
    seen = set()
    for title, text in sections():
        for row in rows(text):
            for code in re.findall(r"`([^`]*)`", row[2]):
                for option in re.findall(r"\b(\w+)=(?!=)", code):
                    assert option in known, (title, option)
                    seen.add(option)
    assert {"causal", "window", "query_offset", "softcap", "alibi", "sinks", "layout", "mask", "bias", "relative"} <= seen


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_files_are_of_peers_alone(path):
    assert "pytestmark = pytest.mark.peers" in path.read_text()
