"""The structure of the package: one meaning for each class name; types of public signatures."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import Dict, Iterator, List, Union

import pytest
from support import ROOT

PACKAGE = ROOT / "polar_pipeline"
MODULES = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
#: Where `Any` may stand in a public signature: messages and nodes of rclpy, values of JSON and YAML files, the node's
#: arguments of `Pipeline`, buffers that `io` takes, modules of CuPy, and the oracle of the tests.
UNTYPED = (
    "ros/",
    "bench/",
    "live/parameters.py",
    "_util/documents.py",
    "_util/files.py",
    "_util/yamlfile.py",
    "cuda/driver.py",
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
