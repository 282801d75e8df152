"""Runs the examples in docs/python.md and in the docstrings."""

import doctest
import importlib
import pkgutil

import pystatelens
import pytest
from conftest import ROOT

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODULES = [
    f"pystatelens.{module.name}"
    for module in pkgutil.iter_modules(pystatelens.__path__)
    if module.name not in ("_native", "__main__")
]


@pytest.mark.parametrize("name", ["pystatelens", *MODULES])
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name), optionflags=FLAGS).failed == 0


def test_docstrings_have_examples():
    finder = doctest.DocTestFinder()
    modules = [importlib.import_module(name) for name in MODULES]
    count = sum(len(test.examples) > 0 for module in modules for test in finder.find(module))
    assert count >= 12


def test_document():
    path = ROOT / "docs/python.md"
    result = doctest.testfile(str(path), module_relative=False, optionflags=FLAGS)
    assert result.attempted > 20 and result.failed == 0
