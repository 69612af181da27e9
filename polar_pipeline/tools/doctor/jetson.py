"""Checks of board, power mode and clocks of a Jetson."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterable, Iterator, Tuple

from polar_pipeline._util import machine
from polar_pipeline._util.machine import BOARD, Check, is_jetson, read_text


def jetson_checks() -> Iterator[Check]:
    """Check board, power mode and clocks of a Jetson, without root; nothing on other machines."""
    if not is_jetson():
        return
    release = re.match(r"# (R\d+) \(release\), REVISION: ([\d.]+)", read_text("etc/nv_tegra_release"))
    linux = f", Jetson Linux {release.group(1)[1:]}.{release.group(2)}" if release else ""
    yield Check("jetson", "ok", (read_text(BOARD) or "model not visible here") + linux)
    yield _power_mode()
    cores = machine.ROOT.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq")
    yield _clock("cpu clocks", cores, "scaling_governor", "scaling_min_freq", "scaling_max_freq")
    gpus = (path for path in machine.ROOT.glob("sys/class/devfreq/*") if re.search(r"gpu|gv11b|ga10b|gp10b", path.name))
    yield _clock("gpu clock", gpus, "governor", "min_freq", "max_freq")


def _speed(name: str) -> Tuple[bool, bool, int, int]:
    """Return the sort key of a power mode, slowest first: unlimited ones last, else by watts and cores."""
    watts, cores = (re.search(rf"(\d+){unit}", name) for unit in ("W", "CORE"))
    return (
        name.startswith("MAXN"),
        "SUPER" in name,
        int(watts.group(1)) if watts else 0,
        int(cores.group(1)) if cores else 100,  # `MODE_30W_ALL`
    )


def _power_mode() -> Check:
    text = read_text("etc/nvpmodel.conf")
    modes = {int(number): name for number, name in re.findall(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>", text)}
    status = re.search(r"pmode:(\d+)", read_text("var/lib/nvpmodel/status"))
    default = re.search(r"<\s*PM_CONFIG\s+DEFAULT=(\d+)\s*>", text)
    current = status or default
    if not modes or current is None:
        return Check("power mode", "optional", "not readable here; on the Jetson itself: sudo nvpmodel -q")
    number = int(current.group(1))
    fastest = max(modes, key=lambda mode: _speed(modes[mode]))
    name = modes.get(number, str(number))
    if number == fastest:
        return Check("power mode", "ok", name)
    return Check("power mode", "problem", f"{name}; {modes[fastest]} is faster: sudo nvpmodel -m {fastest}")


def _clock(topic: str, folders: Iterable[Path], governor: str, lowest: str, highest: str) -> Check:
    """Check whether clocks stay at their highest frequency, by the names of the files in their folders."""
    names = (governor, lowest, highest)
    clocks = {
        folder: [read_text(f"{folder.relative_to(machine.ROOT)}/{name}") for name in names]
        for folder in sorted(folders)
    }
    changing = [folder for folder, (rule, low, high) in clocks.items() if rule != "performance" and low != high]
    if changing:
        listed = ", ".join(path.parent.name if path.name == "cpufreq" else path.name for path in changing)
        return Check(topic, "problem", f"lowered between frames ({listed}): sudo jetson_clocks, after each start")
    if not clocks or not all(map(all, clocks.values())):
        return Check(topic, "optional", "not readable here; on the Jetson itself: sudo jetson_clocks --show")
    return Check(topic, "ok", f"{len(clocks)} at their highest")
