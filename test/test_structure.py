"""The structure of the package: one meaning for each class name; types of public signatures; imports in strings."""

from __future__ import annotations

import ast
from collections import defaultdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Dict, Iterator, List, Tuple, Union

import pytest
from support import ROOT

PACKAGE = ROOT / "polar_pipeline"
MODULES = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
#: Where `Any` may stand in a public signature: messages and nodes of rclpy, values of JSON and YAML files, the node's
#: arguments of `Pipeline`, buffers that `io` takes, modules of CuPy and Kernel Tuner, and the oracle of the tests.
UNTYPED = (
    "ros/",
    "bench/",
    "live/parameters.py",
    "_util/documents.py",
    "_util/files.py",
    "_util/yamlfile.py",
    "cuda/driver.py",
    "cuda/tune.py",
    "cuda/device.py",
    "reference/",
)

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def untyped(source: str) -> Iterator[str]:
    """Public functions and methods whose arguments or result are annotated with `Any`."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, Function) or node.name.startswith("_"):
            continue
        given = node.args
        arguments = [*given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
        annotations: List[Union[ast.expr, None]] = [argument.annotation for argument in arguments] + [node.returns]
        names = {name.id for each in annotations if each for name in ast.walk(each) if isinstance(name, ast.Name)}
        if "Any" in names:
            yield node.name


def test_each_class_name_has_one_meaning() -> None:
    found: Dict[str, List[str]] = defaultdict(list)
    for module, source in MODULES.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module)
    assert {"Pipeline", "CpuBackend", "CudaBackend"} <= set(found)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith(UNTYPED)])
def test_public_signatures_are_typed(module: str) -> None:
    assert list(untyped(MODULES[module])) == []


def imports_of_strings(source: str) -> Iterator[Tuple[str, str]]:
    """(module of this package, name) that programs written as strings import; those run in processes of their own."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or "polar_pipeline" not in node.value:
            continue
        for line in node.value.splitlines():
            try:
                tree = ast.parse(line.strip())
            except (SyntaxError, ValueError):  # a sentence, part of a statement, or bytes
                continue
            for each in ast.walk(tree):
                if isinstance(each, ast.ImportFrom) and str(each.module).split(".")[0] == "polar_pipeline":
                    yield from ((str(each.module), alias.name) for alias in each.names if alias.name != "*")


@pytest.mark.parametrize("path", sorted((ROOT / "test").rglob("*.py")), ids=lambda path: path.stem)
def test_programs_in_strings_import_what_there_is(path: Path) -> None:
    """Also those that only run where there is a GPU."""
    for module, name in imports_of_strings(path.read_text(encoding="utf-8")):
        try:
            found = import_module(module)
        except ModuleNotFoundError as err:
            if str(err.name).startswith(PACKAGE.name):
                raise
            continue  # needs what is not installed here
        is_module = hasattr(found, "__path__") and find_spec(f"{module}.{name}") is not None
        assert hasattr(found, name) or is_module, f"{module} has no {name}"
