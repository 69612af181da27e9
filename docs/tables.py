"""Writes what is made from the code's tables: `python docs/tables.py`.

These are the topics and parameters in docs/ros.md, the names of pixel formats in docs/encodings.md, the products in
docs/api/products.md, the topics that config/sros2_policy.xml allows the node to publish, the images in the layouts for
RViz and Foxglove, and, from the result files of the benchmarks, the times in docs/performance.md and the figures in
docs/accuracy.md and docs/adaptive_demosaic.md.
"""

from __future__ import annotations

import json
import re
import statistics
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from polar_pipeline.live.parameters import PARAMETERS
from polar_pipeline.options import Option
from polar_pipeline.options.products import PRODUCTS, Product
from polar_pipeline.options.topics import (
    CAMERA_INFO_TOPICS,
    COMPRESSED_TOPICS,
    NUMBER_TOPICS,
    PRODUCT_TOPICS,
    image_encoding,
    jpeg_topics,
)
from polar_pipeline.sensor.encodings import FAMILIES, REFUSED
from polar_pipeline.sensor.mosaic import CAMERA_MODELS, SENSORS

ROOT = Path(__file__).resolve().parent.parent
#: Methods of `benchmarks/accuracy.py` that differ from each other -> names in tables. polanalyser's is bilinear.
DEMOSAIC = {
    "bilinear": "bilinear",
    "gradient": "gradient",
    "adaptive": "ADR",
    "EARI": "EARI",
    "half, auto": "default",
    "half, bilinear": "bilinear",
    "half, gradient": "gradient",
    "half, adaptive": "ADR",
    "bilinear, denoised": "bilinear, denoised",
    "gradient, denoised": "gradient, denoised",
    "adaptive, denoised": "ADR, denoised",
    "half, auto, denoised": "default, denoised",
}
#: Products that the table of topics has in one row.
ANGLE_IMAGES = ("angle_0", "angle_45", "angle_90", "angle_135")


def _table(head: Sequence[str], rows: List[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def topics() -> str:
    """One row per product, the four angle images in one: topic, type and encodings, content."""
    rows = []
    for row in PRODUCTS.values():
        if row.name in ANGLE_IMAGES[1:]:
            continue
        topic = PRODUCT_TOPICS[row.name]
        if row.is_number:
            kind = "Float32"
        else:
            names = [image_encoding(row.name, dtype, is_color) for dtype in topic.dtypes for is_color in (False, True)]
            kind = f"Image ({', '.join(dict.fromkeys(names))})" + (", JPEG" if row.name in COMPRESSED_TOPICS else "")
        unit = f", in {row.unit}" if row.unit in ("rad",) else ""
        if row.name in ANGLE_IMAGES:
            names = [name for angle in ANGLE_IMAGES for name in PRODUCT_TOPICS[angle].names]
            rows.append((_quoted(names), kind, _quoted(ANGLE_IMAGES), "image behind the polarizer at this angle"))
        else:
            rows.append((_quoted(topic.names), kind, f"`{row.name}`", row.text + unit))
    return _table(("topic", "type (encodings)", "product", "what it is"), rows)


def _range(row: Product) -> str:
    """Smallest and largest value of the default type, with the unit."""
    if not row.unit:
        return "0 to 255"
    unit = "" if row.unit == "1" else f" {row.unit}" if row.unit == "rad" else f" of {row.unit}"
    planes = [f"{name.upper()}: {low:g} to {high:g}" for name, low, high in row.planes]
    low, high = row.values
    return (", ".join(planes) or f"{low:g} to {'π' if row.wraps else f'{high:.4g}'}") + unit


def products() -> str:
    """One row per product as an array of the library: name, shape, element types, range, meaning."""
    rows = []
    for row in PRODUCTS.values():
        size = "h, w" if row.shrinks else "H, W"
        shapes = [
            f"`({size}, {channels})`" if channels > 1 else f"`({size})`" if channels else "`()`"
            for channels in row.channels
        ]
        shape = ", color ".join(dict.fromkeys(shapes))
        rows.append((f"`{row.name}`", shape, ", ".join(row.types), _range(row), row.text))
    return _table(("product", "shape", "types", "range", "meaning"), rows)


def _allowed(row: Option) -> str:
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    unit = f" ({row.unit})" if row.unit else ""
    return f"{row.limits[0]} to {row.limits[1]}{unit}" if row.limits else ""


def _default(value: object) -> str:
    if isinstance(value, str):
        return f'`"{value}"`'
    text = str(list(value) if isinstance(value, tuple) else value)
    return f"`{text.lower()}`"


def parameters() -> str:
    """One row per parameter of the node."""
    rows = [
        (
            f"`{name}`",
            _default(row.default),
            _allowed(row),
            row.text + (" Fixed at start." if row.read_only else ""),
        )
        for name, row in PARAMETERS.items()
    ]
    return _table(("parameter", "default", "allowed", "what it does"), rows)


def encodings() -> str:
    """One row per family of names that are taken, with what varies in braces."""
    rows = []
    for row in FAMILIES:
        bayer, formats = ("{" + ",".join(keys) + "}" for keys in (row.bayer, row.formats))
        name = row.name.format(bayer=bayer if len(row.bayer) > 1 else row.bayer[0], format=formats)
        rows.append((f"`{name}`", str(row.channels), row.sensor, row.origin))
    return _table(("encoding", "channels", "sensor", "defined by"), rows)


def refused_encodings() -> str:
    """One row per family of known names that are refused."""
    rows = [(re.sub(r"([^, ()]+)(?=,|$| \()", r"`\1`", row.names) or "(empty)", row.reason) for row in REFUSED]
    return _table(("encoding", "why it is refused"), rows)


def sensors() -> str:
    """One row per sensor: size of its frames, and the models of cameras that have it."""
    rows = []
    for name, row in SENSORS.items():
        models = [model for model, sensor in CAMERA_MODELS.items() if sensor == name]
        rows.append((f"`{name}`", "color" if row.is_color else "mono", "{1} x {0}".format(*row.size), _quoted(models)))
    return _table(("sensor", "pixels", "frame", "models of cameras"), rows)


def policy() -> str:
    """One line per topic of a product, of the calibration beside it, or of a number."""
    names = [
        topic
        for product, row in PRODUCT_TOPICS.items()
        for topic in (*row.names, *(jpeg_topics(product) if product in COMPRESSED_TOPICS else ()))
    ]
    return "\n".join(
        f"{12 * ' '}<topic>{topic}</topic>" for topic in (*names, *CAMERA_INFO_TOPICS, *NUMBER_TOPICS.values())
    )


#: Images as both layouts show them: all but vectors, which no viewer shows.
IMAGES = [row for row in PRODUCTS.values() if not (row.is_number or row.planes)]
#: Product -> the map in Foxglove that is closest to its own.
FOXGLOVE_MAPS = {"phase": "rainbow"}
#: Tabs of the Foxglove layout and their images; those that no tab names are in the last one.
TABS = {
    "Polarization": ("intensity", "preview", "dolp", "aolp"),
    "Glare": ("unpolarized", "polarized", "polarizer"),
    "Colors": ("aolp_color", "dolp_color"),
    "Angles": ("angle_0", "angle_45", "angle_90", "angle_135"),
    "Noise": ("dolp_sigma", "aolp_sigma", "significance"),
}
#: Images of the tab for slow links, as JPEG; and the one beside the curves.
JPEGS, BESIDE_CURVES = ("intensity", "unpolarized", "aolp_color", "dolp_color"), "ssim_map"


def displays() -> str:
    """The displays of the RViz layout: those shown by default first, the others without a subscription."""
    rows = sorted(IMAGES, key=lambda row: not row.is_default)
    return "\n".join(
        f"""    - Class: rviz_default_plugins/Image
      Enabled: {str(row.is_default).lower()}
      Max Value: {row.viewed[1]:.6g}
      Median window: 5
      Min Value: {row.viewed[0]:g}
      Name: {row.name}
      Normalize Range: false
      Topic:
        Depth: 5
        Durability Policy: Volatile
        History Policy: Keep Last
        Reliability Policy: Best Effort
        Value: {PRODUCT_TOPICS[row.name].name}
      Value: {str(row.is_default).lower()}"""
        for row in rows
    )


def foxglove(text: str) -> str:
    """The Foxglove layout with a panel for every image, in tabs; curves and diagnostics stay as they are."""
    document = json.loads(text)
    panels = {name: panel for name, panel in document["configById"].items() if not name.startswith(("Image!", "Tab!"))}
    left = [row.name for row in IMAGES if row.name not in {BESIDE_CURVES, *sum(TABS.values(), ())}]
    tabs = {title: side_by_side([f"Image!{name}" for name in names]) for title, names in TABS.items()}
    tabs.update({"Others": side_by_side([f"Image!{name}" for name in left])} if left else {})
    tabs["JPEG"] = side_by_side([f"Image!{name}_jpeg" for name in JPEGS])
    images = {f"Image!{row.name}": image_mode(row) for row in IMAGES}
    images.update({f"Image!{name}_jpeg": {"imageTopic": f"/{COMPRESSED_TOPICS[name]}"} for name in JPEGS})
    document["configById"] = {
        "Tab!images": {"activeTabIdx": 0, "tabs": [{"title": title, "layout": tab} for title, tab in tabs.items()]},
        **{name: {"imageMode": mode, "cameraState": {}, "layers": {}} for name, mode in images.items()},
        **panels,
    }
    return json.dumps(document, indent=2) + "\n"


def image_mode(row: Product) -> Dict[str, Any]:
    """How Foxglove shows a product."""
    mode: Dict[str, Any] = {"imageTopic": f"/{PRODUCT_TOPICS[row.name].name}"}
    if "float32" in PRODUCT_TOPICS[row.name].dtypes:
        (low, high), colors = row.viewed, FOXGLOVE_MAPS.get(row.colors, "turbo")
        mode.update(colorMode="colormap", colorMap=colors, minValue=low, maxValue=high)
    return mode


def side_by_side(panels: Sequence[str]) -> Any:
    """Panels in a row, all of a width."""
    if len(panels) == 1:
        return panels[0]
    half = len(panels) // 2
    split = 100 * half // len(panels)
    first, second = side_by_side(panels[:half]), side_by_side(panels[half:])
    return {"direction": "row", "first": first, "second": second, "splitPercentage": split}


def _results(name: str) -> Any:
    """A result file of the benchmarks."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def _kernels(schedules: Sequence[Dict[str, Any]]) -> str:
    """Names of the kernels of launches; one that has no source any more was removed after the measurement."""
    names = [schedule["kernel"] for schedule in schedules]
    exists = {name: any((ROOT / "kernels").glob(f"{name}.cu*")) for name in names}
    return ", ".join(f"`{name}`" + ("" if exists[name] else " (removed)") for name in names)


def kernel_times() -> str:
    """One row per work of `benchmarks/gpu.py` and `ssim.py`: kernels, times, share of a copy."""
    report, ssim = _results("gpu_nvidia_h200"), _results("ssim_nvidia_h200")["results"]
    rows = []
    for case in report["cases"].values():
        single = f"{case['single_frame']['us_in_graph_of_64']:.1f}" if "single_frame" in case else ""
        times = f"{case['us_per_frame']:.2f}", single, f"{case['share']:.2f}"
        rows.append((case["text"], _kernels([case["schedule"]]), *times))
    for case in report["with_geometry"].values():
        times = case["us_per_frame_by_frames_a_launch"]
        rows.append((case["text"], _kernels(case["schedules"]), f"{times['64']:.2f}", f"{times['1']:.1f}", ""))
    rows += [
        (case["text"], _kernels(case["schedules"]), "", f"{case['us_in_graph_of_64']:.1f}", "")
        for case in report["with_ssim"].values()
    ]
    row = ssim["product"]
    times = f"{row['us_per_frame']:.2f}", f"{row['us_in_graph_of_64']:.1f}", ""
    rows.append(("SSIM map and mean of 1224x1024", _kernels([row["schedule"]]), *times))
    others = {
        "the same by fused-ssim": ssim.get("fused-ssim", {}).get("us_per_frame"),
        "four color angles, already split, by NPP's bilinear debayer": (report["npp"] or {}).get("npp_us"),
        "mono half, intensity dolp aolp, on 16 threads of the CPU": report["cpu"]["cpu_us"],
    }
    rows += [(text, "", f"{time:.4g}", "", "") for text, time in others.items() if time is not None]
    head = ("work", "kernels", "µs, 64 frames a launch", "µs, one frame a launch", "of copy")
    return _table(head, rows)


def whole_frames() -> str:
    """One row per case of `benchmarks/whole_frames.py`, in microseconds."""
    columns = ("pageable", "frame_memory", "stream", "copies", "copies in strips", "cpu", "submitted on the device")
    head = (
        "frame",
        "ordinary memory",
        "`frame_memory`",
        "`stream`",
        "copies alone",
        "overlapping copies",
        "CPU backend",
        "on the GPU",
    )
    cases = _results("gpu_nvidia_h200")["whole_frames_us"]
    return _table(head, [(name, *(f"{case[column]:.0f}" for column in columns)) for name, case in cases.items()])


def first_frames() -> str:
    """One row per measurement of `benchmarks/first_frames.py`, in seconds; nothing for results that lack it."""
    report = _results("gpu_nvidia_h200").get("first_frames")
    if report is None:
        return ""
    sizes = report["sizes"]
    rows = [
        ("first frame, no kernels on disk", f"{report['cold_s']:.2f}"),
        ("first frame, kernels on disk", f"{report['warm_s']:.2f}"),
        (f"frames of {sizes['count']} sizes, no kernels on disk", f"{sizes['cold_s']:.1f}"),
    ]
    return _table(("what", "s"), rows)


def cpu_times() -> str:
    """One row per work of `benchmarks/cpu.py`: this package's time, and that of the other package."""
    report = _results("cpu_intel_r_xeon_r_processor")

    def time(part: str, name: str) -> str:
        return f"{report[part][name]['median_ms']:.1f}" if name else ""

    rows = [
        (text, time(part, ours), time(part, other) + (f" ({other})" if other else ""))
        for text, part, ours, other in (
            ("mono, full: Stokes vector, DoLP, AoLP", "polarimetry", "polar_pipeline", "polanalyser"),
            ("the same of a real frame, bilinear", "methods", "bilinear", "polanalyser"),
            ("the same, gradient", "methods", "gradient", "polanalyser"),
            ("the same, ADR", "methods", "adaptive", "polanalyser"),
            ("SSIM map and mean", "similarity", "polar_pipeline", "scikit-image"),
            ("four RGB angle images, bilinear", "color", "polar_pipeline bilinear", "polanalyser"),
            ("the same, ADR", "color", "polar_pipeline adaptive", "polanalyser"),
            ("mono, half: intensity, DoLP, AoLP in uint8", "calibrated", "half, bilinear", ""),
            ("the same with a calibration", "calibrated", "half, bilinear, corrected", ""),
            ("mono, full, gradient, uint8", "calibrated", "full, gradient", ""),
            ("the same with a calibration", "calibrated", "full, gradient, corrected", ""),
        )
    ]
    return _table((report["machine"]["cpu"].replace("(R)", ""), "ms", "other package, ms"), rows)


def node_times() -> str:
    """One row per run of `benchmarks/node.py`, one column per load: the relay / this node / the usual node."""

    def cell(nodes: Dict[str, Any], load: str) -> str:
        present = [nodes[name] for name in ("relay", "ours", "usual") if name in nodes]
        if load == "fastest":
            return " / ".join(f"{node['MEAN_FRAME_RATE']:.0f}" for node in present) + " Hz"
        return " / ".join(f"{node['latency_ms']['frame']['p50']:.1f}" for node in present) + " ms"

    rows = [
        (f"{device}, {run}", *(cell(report[load], load) for load in ("alone", "fastest", "camera")))
        for device, file in (("2 cores, CPU", "node_amd_epyc"), ("H200", "node_nvidia_h200"))
        for run, report in _results(file)["runs"].items()
    ]
    return _table(("relay / this node / usual", "one frame at a time", "at full speed", "24 Hz"), rows)


def sources() -> str:
    """One row per repository of `benchmarks/public_scenes.py`: how many scenes, what they are, the license."""
    report = _results("accuracy_scenes")
    rows = []
    for source in report["sources"]:
        name = source["repository"]
        count = sum(scene[0] == name for scene in report["mono"]["scenes"])
        link = f"[{name}](https://github.com/{name}), `{source['commit'][:7]}`"
        rows.append((link, str(count), source["about"], source["license"] or "not stated"))
    return _table(("repository, commit", "scenes", "what", "license"), rows)


def _figures(row: Dict[str, Optional[float]], names: Iterable[str]) -> List[str]:
    """Figures of `benchmarks/accuracy.py` as cells."""
    formats = {"DoLP": "{:.4f}", "AoLP": "{:.2f}°"}
    return ["" if row[name] is None else formats.get(name, "{:.2f}").format(row[name]) for name in names]


def accuracy(kind: str, resolution: str) -> str:
    """One row per exposure and method, means over the public scenes of a kind."""
    names = ("I", "S0", "S1", "S2", "DoLP", "AoLP")
    rows = []
    for exposure, methods in _results("accuracy_scenes")[kind]["exposures"].items():
        for method, row in methods.items():
            if method.startswith("half, ") == (resolution == "half"):
                label = DEMOSAIC.get(method, method)
                rows.append((exposure, label, *_figures(row["mean"], names)))
    return _table(("exposure", "method", *names), rows)


def is_plain_full(method: str) -> bool:
    """Whether a method of `benchmarks/accuracy.py` is of full resolution, and not denoised."""
    return not method.startswith("half, ") and "denoised" not in method


def synthetic_accuracy() -> str:
    """One row per method at full resolution, means over the synthetic scenes without noise."""
    names = ("I", "S0", "DoLP", "AoLP")
    report = _results("accuracy")
    rows = [
        (f"{kind}, {label}", *_figures(report[kind]["exposures"]["none"][method]["mean"], names))
        for kind in ("mono", "color")
        for method, label in DEMOSAIC.items()
        if is_plain_full(method)
    ]
    return _table(("", *names), rows)


def edge_accuracy() -> str:
    """One row per pattern: I and AoLP of the methods at full resolution."""
    names = list(filter(is_plain_full, DEMOSAIC))
    rows = [
        (pattern, *("; ".join(_figures(methods[name], ("I", "AoLP"))) for name in names))
        for pattern, methods in _results("accuracy")["patterns"]["0.6 px"].items()
    ]
    return _table(("", *(DEMOSAIC[name] for name in names)), rows)


def denoising_gains() -> str:
    """One row per exposure: errors of DoLP and AoLP without and with `denoise`, means over the public mono scenes."""
    rows = []
    for exposure, methods in _results("accuracy_scenes")["mono"]["exposures"].items():
        pairs = (("adaptive", "adaptive, denoised"), ("half, auto", "half, auto, denoised"))
        cells = [_figures(methods[name]["mean"], ("DoLP", "AoLP")) for pair in pairs for name in pair]
        rows.append((exposure, *(f"{a[0]} → {b[0]}, {a[1]} → {b[1]}" for a, b in zip(cells[::2], cells[1::2]))))
    return _table(("exposure", "full resolution, ADR", "half resolution, default"), rows)


def learned_gains() -> str:
    """One row per exposure: gains of I, S1 and S2 by the network, means and least ones."""
    scenes, rows = _results("learned")["scenes"], []
    for exposure in scenes["12 bits"]:
        cells = [exposure]
        for bits in ("12 bits", "8 bits"):
            gains = scenes[bits][exposure]
            cells += [f"{mean:.2f} ({gains['least gain'][name]:.2f})" for name, mean in gains["mean gain"].items()]
        rows.append([cell.replace("-0.00", "0.00") for cell in cells])
    return _table(("exposure", *(f"{name}, {bits} bits" for bits in (12, 8) for name in ("I", "S1", "S2"))), rows)


def stated_sigma(method: str) -> str:
    """One row per exposure: stated over real deviations of DoLP and AoLP; least, median and largest of all scenes."""
    rows = []
    for exposure, ratios in _results("learned")["sigma"][method].items():
        of_scenes = [[value for value in ratios[name] if value is not None] for name in ("DoLP", "AoLP")]
        rows.append((exposure, *(f"{min(of):.2f}, {statistics.median(of):.2f}, {max(of):.2f}" for of in of_scenes)))
    return _table(("exposure", "DoLP: least, median, largest", "AoLP"), rows)


#: File -> what it has between two comments of a name, by that name.
TABLES: Dict[str, Dict[str, Callable[[], str]]] = {
    "docs/cli.md": {"sensors": sensors},
    "docs/ros.md": {"topics": topics, "parameters": parameters},
    "docs/api/products.md": {"products": products},
    "docs/encodings.md": {"accepted": encodings, "refused": refused_encodings},
    "docs/performance.md": {
        "h200": kernel_times,
        "frames": whole_frames,
        "first": first_frames,
        "cpu": cpu_times,
        "node": node_times,
    },
    "docs/accuracy.md": {
        "sources": sources,
        "mono": partial(accuracy, "mono", "full"),
        "color": partial(accuracy, "color", "full"),
        "mono half": partial(accuracy, "mono", "half"),
        "color half": partial(accuracy, "color", "half"),
    },
    "docs/denoising.md": {"gains": denoising_gains, "sigma": partial(stated_sigma, "denoised")},
    "docs/learned.md": {"gains": learned_gains, "sigma": partial(stated_sigma, "learned")},
    "docs/adaptive_demosaic.md": {"synthetic": synthetic_accuracy, "edges": edge_accuracy},
    "config/sros2_policy.xml": {"products": policy},
    "config/polar_pipeline.rviz": {"products": displays},
    "config/foxglove_layout.json": {},
}


def fill(name: str) -> str:
    """The text of a file with its tables up to date."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for title, table in TABLES[name].items():
        mark = f"# {title}" if name.endswith(".rviz") else f"<!-- {title} -->"
        found = re.search(f"{mark}\n(.*?)\n *{mark}", text, re.DOTALL)
        if found is None:
            raise ValueError(f"{name} must have {mark} twice, on lines of their own")
        text = text[: found.start(1)] + table() + text[found.end(1) :]
    return foxglove(text) if name.endswith(".json") else text


if __name__ == "__main__":
    for document in TABLES:
        (ROOT / document).write_text(fill(document), encoding="utf-8")
