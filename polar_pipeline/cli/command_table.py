"""The commands of the tool: groups and order in `--help`, what their short help shows, and examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

#: Options of a pipeline in the short help of commands that compute products, and of those that plan a GPU's work.
_FOR_PRODUCTS = ("sensor", "bit_depth", "products", "resolution", "calibration")
#: Arguments that say how files are read.
_FILES = ("content", "angle_order", "array", "raw")
_FOR_GPUS = ("sensor", "bit_depth", "products", "resolution", "dtype", "calibration")


@dataclass(frozen=True)
class Command:
    """One command, a module of its name.

    Attributes:
        summary: One line for the list of commands and the command's help.
        examples: Command lines for the end of its help.
        options: Options of a pipeline in its short help; None for a command that has none.
        rare: Other arguments that only the complete help shows, by their names in the parsed values.
    """

    summary: str
    examples: Tuple[str, ...] = ()
    options: Optional[Tuple[str, ...]] = None
    rare: Tuple[str, ...] = ()


#: Heading -> commands, both in the order of use: a new user needs the first ones first.
COMMAND_GROUPS: Dict[str, Dict[str, Command]] = {
    "pictures and recordings": {
        "process": Command(
            "Turn pictures, arrays, folders or recordings into pictures, arrays or a video.",
            (
                "polar-pipeline process raw.png -o out",
                "polar-pipeline process 'scene_{000,045,090,135}.png' -o out",
                "polar-pipeline process drive.mcap -o out --format npz --products stokes",
            ),
            ("sensor", "bit_depth", "products", "resolution"),
            ("max_bytes", "strict", "content", "angle_order", "array", "raw", "rate", "topic", "gain", "overview"),
        ),
        "view": Command(
            "Show a recording, pictures or a live topic in Rerun, or write an .rrd file.",
            (
                "polar-pipeline view drive.mcap",
                "polar-pipeline view pictures --products intensity dolp_color --save drive.rrd",
                "polar-pipeline view --topic /camera/image_raw",
            ),
            _FOR_PRODUCTS,
            (*_FILES, "max_bytes", "strict", "rate", "reference", "params"),
        ),
        "replay": Command(
            "Process a recording offline and deterministically.",
            (
                "polar-pipeline replay drive.mcap -o products.mcap",
                "polar-pipeline replay drive.mcap --compare trusted.mcap --junit result.xml",
            ),
            _FOR_PRODUCTS,
            (*_FILES, "max_bytes", "strict", "rate", "reference", "params", "json", "tolerance"),
        ),
        "batch": Command(
            "Process many recordings on all cores or GPUs, or on a Dask cluster.",
            ("polar-pipeline batch 'drives/**/*.mcap' -o results",),
            ("sensor", "products", "resolution", "calibration"),
            ("max_bytes", "strict", "rate", "reference", "params", "tolerance", "retries", "spool", "spool_gb"),
        ),
        "compress": Command(
            "Compress the raw images of a recording without loss; `replay` reads the result.",
            ("polar-pipeline compress drive.mcap -o small.mcap",),
        ),
        "decompress": Command(
            "Restore the raw images of a recording that `compress` wrote.",
            ("polar-pipeline decompress small.mcap -o drive.mcap",),
        ),
    },
    "cameras and calibration": {
        "camera": Command(
            "List cameras, show what one is set to, and set its GenICam features.",
            ("polar-pipeline camera list", "polar-pipeline camera set ExposureTime=5000 Gain=0"),
        ),
        "capture": Command(
            "Capture raw frames from a camera, also of a calibration step by step (--guide).",
            ("polar-pipeline capture -o pictures --frames 10", "polar-pipeline capture -o session --guide"),
            rare=("packet_size", "packet_delay_ns", "features", "frame_rate"),
        ),
        "layout": Command(
            "Check whether sensor, ROI offset and flips fit a picture.",
            ("polar-pipeline layout raw.png --sensor IMX250MYR", "polar-pipeline layout sheet.png --polarizer 45"),
            ("sensor", "bit_depth", "roi_offset", "flip"),
        ),
        "calibrate": Command(
            "Measure the calibration of a sensor with a rotated polarizer.",
            (
                "polar-pipeline calibrate session -o sensor.npz",
                "polar-pipeline calibrate other_session --check sensor.npz",
            ),
            ("sensor", "bit_depth"),
            ("max_bytes", "strict", "accept_bad", "temperature", "exposure", "gain_db", "topic"),
        ),
        "simulate": Command(
            "Write a synthetic calibration session, to try calibration without a laboratory.",
            ("polar-pipeline simulate session",),
        ),
    },
    "ROS": {
        "play": Command(
            "Publish a recording into ROS.", ("polar-pipeline play drive.mcap --to /camera/image_raw --loop",)
        ),
        "env": Command('Print the setting that large frames need in ROS: eval "$(polar-pipeline env)".'),
    },
    "this machine": {
        "doctor": Command("Show which libraries and backends work on this machine, and how to fix the others."),
        "bench": Command("Measure the speed of this machine.", ("polar-pipeline bench node --seconds 5",)),
        "plan": Command(
            "Show the operators, launches and schedules of a GPU, and the bound by its memory.",
            ("polar-pipeline plan --device orin --products intensity dolp aolp",),
            _FOR_GPUS,
        ),
        "tune": Command(
            "Measure every schedule on this machine's GPU and keep the fastest.",
            ("polar-pipeline tune --device workstation --products intensity dolp aolp",),
            _FOR_GPUS,
        ),
    },
}
#: Every command by name.
COMMANDS: Dict[str, Command] = {name: row for rows in COMMAND_GROUPS.values() for name, row in rows.items()}
