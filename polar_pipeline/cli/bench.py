"""`polar-pipeline bench node`: rates and latencies of the live node on this machine."""

from __future__ import annotations

import argparse
import json
from functools import partial

from polar_pipeline import __version__
from polar_pipeline.cli.argument_types import DAY_S, parse_number, parse_products
from polar_pipeline.cli.errors import UsageError, errors_as, importing_ros, show_error
from polar_pipeline.cli.shared_arguments import add_shared_arguments, parse_rate
from polar_pipeline.options import OPTIONS
from polar_pipeline.options.products import DEFAULT_PRODUCTS, get_products
from polar_pipeline.sensor.mosaic import get_sensor
from polar_pipeline.tools.bench.figures import format_figures


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    actions = parser.add_subparsers(metavar="COMMAND")
    actions.required = True
    text = "Measure the live node between a synthetic camera and a viewer, over the real middleware."
    parser = actions.add_parser("node", help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print JSON; fields are named as in ros2_benchmark")
    parser.add_argument(
        "--seconds",
        type=partial(parse_number, lowest=1e-3, highest=DAY_S),
        default=10.0,
        help="duration of the measurement at --rate and of the one at full speed (default: 10)",
    )
    parser.add_argument(
        "--rate", type=parse_rate, default=24.0, metavar="HZ", help="frame rate of the camera (default: 24)"
    )
    add_shared_arguments(parser, "--size")
    parser.add_argument("--sensor", default="IMX250MZR", help="sensor of the camera (default: %(default)s)")
    row = OPTIONS["backend"]
    parser.add_argument("--backend", choices=row.choices, default="auto", help=f"{row.text} (default: auto)")
    parser.add_argument(
        "--products",
        type=parse_products,
        default=DEFAULT_PRODUCTS,
        metavar="NAMES",
        help="products to subscribe to, separated by commas or spaces",
    )


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    with importing_ros("bench node"):
        from polar_pipeline.tools.bench.node import measure
    with errors_as(UsageError):
        get_sensor(values.sensor)
    values.products = get_products(values.products)
    loads = measure(
        values.backend, values.sensor, values.size, values.products, values.rate, values.seconds, show_error
    )
    if values.json:
        facts = {name: getattr(values, name) for name in ("backend", "sensor", "size", "products", "rate", "seconds")}
        print(json.dumps({"version": __version__, **facts, "loads": loads}, indent=2))
    else:
        print("\n\n".join(format_figures(name, figures) for name, figures in loads.items()))
    return 0
