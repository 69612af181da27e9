"""pytest plugin: what was skipped, in one line per reason."""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterable, List


def lines(reports: Iterable[Any]) -> List[str]:
    """Reports of skipped tests, and of test files skipped as a whole, as text: most skips first."""
    tests: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for report in reports:
        # with a mark or a call of `skip` this is (path, line, reason)
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        text = " ".join(reason.split())
        counted = files if report.when == "collect" else tests
        counted[text[len("Skipped: ") :] if text.startswith("Skipped: ") else text] += 1
    found = []
    for reason, _ in (tests + files).most_common():
        counts = filter(None, [count(tests[reason], "test"), count(files[reason], "file")])
        found.append(f"{' and '.join(counts)}: {reason}")
    return found


def count(number: int, what: str) -> str:
    return "" if not number else f"{number} {what}{'s' * (number > 1)}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found = lines(terminalreporter.stats.get("skipped", ()))
    if found:
        terminalreporter.section("skipped")
        for line in found:
            terminalreporter.write_line(line)
