"""pytest plugin: tests that start other processes are run once more when they fail, and what failed first is shown.

Discovery of ROS nodes and clusters of processes have time limits of their own, which a machine with much to do exceeds.
Tests that compute in this process alone have one chance. Without pytest-rerunfailures, every test has.
"""

from __future__ import annotations

from typing import Any, List

import pytest


def starts_processes(item: pytest.Item) -> bool:
    """Whether a test runs ROS nodes, or a cluster of Dask's."""
    return item.get_closest_marker("ros") is not None or item.path.parent.name == "batch"


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    for item in filter(starts_processes, items):
        item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found = terminalreporter.stats.get("rerun", ())
    if found:
        terminalreporter.section("failed once and run again")
    for report in found:
        terminalreporter.write_line(report.nodeid)
        terminalreporter.write_line(str(report.longrepr))
