"""README's Python examples run as they stand, and the stubs say what the package has."""

import ast
import inspect
import os
import pathlib
import re

import pytest

import attend
from attend import _core

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "attend"
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_readme_has_a_python_example():
    assert BLOCKS


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_readmes_python_example_runs(number, request, tmp_path, monkeypatch):
    block = BLOCKS[number]
    if re.search(r"^\s*(import|from) (torch|jax)\b", block, re.MULTILINE) and not request.config.getoption("--peers"):
        pytest.skip("needs other systems; run with --peers")
    if re.search(r"^\s*import jax\b", block, re.MULTILINE):
        pytest.importorskip("jax")  # Python 3.10 has none among the peers
    monkeypatch.chdir(tmp_path)  # what an example writes is not left in the tree
    if (ROOT / "examples").exists():
        os.symlink(ROOT / "examples", tmp_path / "examples")
    exec(compile(block, f"README.md, Python example {number + 1}", "exec"), {"__name__": "__main__"})


def test_the_docstrings_example_runs():
    import doctest

    failed, tried = doctest.testmod(attend)
    assert tried and not failed


def functions(stub):
    return {node.name: node for node in ast.parse((PACKAGE / stub).read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("stub, module", [("__init__.pyi", attend), ("_core.pyi", _core)])
def test_stubs_name_the_functions_that_exist(stub, module):
    present = {name for name, value in vars(module).items() if callable(value) and not name.startswith("_") and not inspect.isclass(value)}
    assert set(functions(stub)) == present


def test_stubs_have_the_parameters_that_exist():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    dicts = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def keys(name):
        node = dicts[name]
        inherited = [key for base in node.bases if getattr(base, "id", None) in dicts for key in keys(base.id)]
        return inherited + [field.target.id for field in node.body if isinstance(field, ast.AnnAssign)]

    for name, node in functions("__init__.pyi").items():
        listed = {a.arg for a in node.args.args + node.args.kwonlyargs}
        if node.args.kwarg:
            listed |= set(keys(node.args.kwarg.annotation.slice.id))
        assert listed == set(inspect.signature(getattr(attend, name)).parameters), name


def test_everything_public_is_documented():
    for name in attend.__all__:
        assert inspect.getdoc(getattr(attend, name)), name
