"""The library, the command line and the node with nothing but what ROS 2 and apt have: no extra can be imported."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support import FRAMES, ROOT, run_python

from polar_pipeline import Pipeline, cli
from polar_pipeline.recordings import bags, messages
from polar_pipeline.recordings.limits import MAX_BYTES
from polar_pipeline.recordings.messages import FLOAT32, IMAGE
from polar_pipeline.recordings.rosbag2 import RosbagReader
from polar_pipeline.recordings.sink import open_sink
from polar_pipeline.tools.doctor import checks as doctor

#: Refuses modules that `pip install` brings with an extra, and pip's Jinja; then runs what follows.
WITHOUT = """
import importlib.abc
import sys

EXTRAS = {"rosbags", "mcap", "lz4", "zstandard", "ruamel", "tqdm", "jinja2", "dask", "distributed", "fsspec"}
EXTRAS |= {"pyarrow", "rerun", "aiohttp", "skimage", "cupy", "elftools", "av"}


class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refused())
"""

#: A node that is sent a frame; prints the mean of a product.
NODE = """
import numpy as np
import rclpy
from sensor_msgs.msg import CameraInfo, Image

from polar_pipeline.recordings import messages
from polar_pipeline.ros.node import PolarNode

rclpy.init()
node = PolarNode(argv=["node", "--ros-args", "-p", "backend:=cpu"])
other = rclpy.create_node("other")
products, raw = [], np.arange(32 * 48, dtype=np.uint8).reshape(32, 48)
infos = []
other.create_subscription(Image, "polarization/dolp", products.append, 5, raw=True)
other.create_subscription(CameraInfo, "polarization/camera_info", infos.append, 5)
frames = other.create_publisher(Image, "image_raw", 5)
camera = other.create_publisher(CameraInfo, "camera_info", 5)
executor = rclpy.executors.SingleThreadedExecutor()
executor.add_node(node)
executor.add_node(other)
info = CameraInfo(width=48, height=32, distortion_model="plumb_bob", d=[0.1, 0.0, 0.0, 0.0, 0.0])
info.k[0] = info.k[4] = info.p[0] = info.p[5] = 40.0
stamp = 0
while not (products and infos):
    stamp += 10**8
    camera.publish(info)
    frames.publish(bytes(messages.encode_image(stamp, "camera", "mono8", raw)))
    executor.spin_once(timeout_sec=0.1)
assert infos[0].width == 24 and infos[0].d[0] == 0.1, infos[0]
print(float(np.nanmean(messages.to_array(messages.decode_image(products[0])))))
from std_srvs.srv import SetBool, Trigger
print(node._on_snapshot(None, Trigger.Response()).result().message)
print(node._on_record(SetBool.Request(data=True), SetBool.Response()).result().message)
node.close()
"""


def run(code: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Python code where no extra can be imported."""
    return run_python("-c", WITHOUT + code, *arguments, cwd=str(cwd))


def tool(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command of the tool; two make reports by Jinja, which apt has."""
    code = "EXTRAS.remove('jinja2')\n" if arguments[0] in ("calibrate", "replay") else ""
    return run(f"{code}from polar_pipeline.cli import main\nsys.exit(main(sys.argv[1:]))", *arguments, cwd=cwd)


def test_pictures_are_processed(tmp_path: Path) -> None:
    done = tool("process", str(FRAMES / "imx250mzr_fruits.png"), "-o", str(tmp_path), "--products", "dolp")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["imx250mzr_fruits_dolp.png"]


@pytest.mark.parametrize("command", ["layout", "simulate", "plan", "env"])
def test_other_commands_start(command: str) -> None:
    done = tool(command, "--help")
    assert done.returncode == 0, done.stderr


#: Libraries without which something works; all of them are installed in the tests below, and broken.
OPTIONAL = sorted(name for name, lost in {**doctor._LIBRARIES, **doctor._ROS, "cupy": "no GPU"}.items() if lost)
#: Runs the tool where these libraries raise an error while they are imported.
BROKEN = f"""
import importlib.util
import sys

error = eval(sys.argv.pop(1))


class Broken:
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in {OPTIONAL} else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        raise error


sys.meta_path.insert(0, Broken())
from polar_pipeline.cli import main
sys.exit(main(sys.argv[1:]))
"""


def broken(error: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the tool where every optional library raises an error while it is imported."""
    return run_python("-c", BROKEN, error, *arguments, cwd=str(cwd))


@pytest.mark.parametrize("error", ["SyntaxError", "OSError", "KeyError", "AttributeError", "ImportError"])
def test_the_doctor_lists_every_broken_library(error: str, tmp_path: Path) -> None:
    done = broken(f"{error}('for another Python')", "doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = {line[9:28].strip(): line for line in done.stdout.splitlines()}
    for name in (*OPTIONAL, "gpu", "nvrtc", "backend cuda", "middleware"):
        assert lines[name].startswith("optional"), lines[name]
        assert "for another Python" in lines[name]


@pytest.mark.parametrize(
    "command",
    [
        "replay x.mcap -o y.mcap",
        "compress x.mcap -o y.mcap",
        "play x.mcap",
        "view x.mcap",
        "view --topic /image_raw --save x.rrd",
        "batch x.mcap -o y",
        "calibrate x.mcap -o y.npz --angles a.csv",
        "bench node",
        "tune --device x",
    ],
)
def test_a_command_that_needs_a_broken_library_says_why_in_a_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "x.mcap").touch()
    (tmp_path / "a.csv").write_text("first,last,angle\n0,1,0\n")
    done = broken("SyntaxError('for another Python')", *command.split(), cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(("polar-pipeline: ", f"polar-pipeline {command.split()[0]}: "))
    assert "for another Python" in line


def test_pictures_are_processed_where_optional_libraries_are_broken(tmp_path: Path) -> None:
    picture = str(FRAMES / "imx250mzr_fruits.png")
    done = broken("SyntaxError()", "process", picture, "-o", "out", "--products", "dolp", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["imx250mzr_fruits_dolp.png"]


def test_the_doctor_names_the_extras() -> None:
    done = tool("doctor")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if len(line.split()) > 1}
    for module, packages in (
        ("mcap", "rosbags mcap lz4 zstandard tqdm"),
        ("dask", "'/path/to/polar_pipeline[batch]'"),
        ("av", "'/path/to/polar_pipeline[video]'"),
        ("rerun", "'/path/to/polar_pipeline[view]'"),
    ):
        assert lines[module].startswith("optional")
        assert f"python3 -m pip install {packages};" in lines[module]


@pytest.mark.parametrize("command", ["calibrate x.mcap -o y.npz --angles a.csv", "compress x.mcap -o y.mcap"])
def test_a_command_that_lacks_its_extra_names_it_in_a_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a recording is opened; commands that handle only recordings, at their start."""
    (tmp_path / "x.mcap").touch()
    (tmp_path / "a.csv").write_text("first,last,angle\n0,1,0\n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = tool(*command.split(), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("polar-pipeline: No module named '")
    assert line.endswith("; python3 -m pip install rosbags mcap lz4 zstandard tqdm")


#: A module with what is used of rosbag2_py, by the names in its sources: `src/rosbag2_py/_reader.cpp`, `_storage.cpp`.
#: It has the messages of `x.mcap` from `x.mcap.pickle`, in their order, with the topics and types.
ROSBAG2_PY = """
import pickle
from types import SimpleNamespace as Row


class StorageOptions(Row):
    def __init__(self, uri, storage_id=""):
        super().__init__(uri=uri, storage_id=storage_id)


class ConverterOptions:
    def __init__(self, input_serialization_format="", output_serialization_format=""):
        pass


class StorageFilter(Row):
    def __init__(self, topics):
        super().__init__(topics=topics)


class SequentialReader:
    def open(self, storage_options, converter_options):
        assert storage_options.storage_id == "mcap"
        with open(storage_options.uri + ".pickle", "rb") as stream:
            self.topics, self.rows = pickle.load(stream)

    def get_metadata(self):
        topics = [(Row(name=name, type=kind), count) for (name, kind), count in self.topics.items()]
        rows = [Row(topic_metadata=metadata, message_count=count) for metadata, count in topics]
        return Row(topics_with_message_count=rows)

    def set_filter(self, chosen):
        self.rows = [row for row in self.rows if row[0] in chosen.topics]

    def seek(self, time_ns):
        self.rows = [row for row in self.rows if row[2] >= time_ns]

    def has_next(self):
        return bool(self.rows)

    def read_next(self):
        return self.rows.pop(0)
"""


@pytest.fixture
def robot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a stand-in for rosbag2_py, and what it reads: four frames, and their products."""
    (tmp_path / "rosbag2_py.py").write_text(ROSBAG2_PY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(tmp_path))))
    monkeypatch.syspath_prepend(str(tmp_path))
    raws = np.random.default_rng(0).integers(20, 200, (4, 32, 48), np.uint8)
    with open_sink(tmp_path / "x.mcap", {}) as sink:
        for stamp, raw in enumerate(raws, 1):
            sink.write("/other", FLOAT32, stamp, messages.encode_float32(stamp))
            sink.write("/raw", IMAGE, stamp, messages.encode_image(stamp, "camera", "mono8", raw))
    recording, output = str(tmp_path / "x.mcap"), str(tmp_path / "out.mcap")
    assert cli.main(["replay", recording, "-o", output, "--report", "-", "--products", "dolp,ssim"]) == 0
    for name in ("x.mcap", "out.mcap"):
        with bags.open_recording(tmp_path / name, MAX_BYTES) as bag:
            rows = [(topic, *row[1:]) for topic, kind in bag.topics for row in bag.messages([(topic, kind)])]
            rows = [(topic, bytes(data), time_ns) for topic, time_ns, data in rows]
            content = pickle.dumps((bag.topics, sorted(rows, key=lambda row: row[2])))
        (tmp_path / f"{name}.pickle").write_bytes(content)
    return tmp_path


def test_rosbag2_reads_what_mcap_reads(robot: Path) -> None:
    reader = RosbagReader(robot / "x.mcap")
    with bags.open_recording(robot / "x.mcap", MAX_BYTES) as bag:
        assert reader.topics == bag.topics
        for keys in ([("/raw", IMAGE)], [("/raw", IMAGE), ("/other", FLOAT32)]):
            for time_ns in (None, 0, 1, 3, 4, 9):
                rows = list(bag.messages(keys, time_ns))
                assert list(reader.messages(keys, time_ns)) == rows
                assert len(rows) == len(keys) * (4 if time_ns is None else time_ns in (1, 3, 4))


def test_a_robot_compares_recordings(robot: Path) -> None:
    """With Jinja for reports, and rosbag2_py."""
    command = ["replay", "x.mcap", "--compare", "out.mcap", "--products", "dolp,ssim"]
    for options, code in (([], 0), (["--min-intensity", "0.9"], 1)):
        done = tool(*command, *options, cwd=robot)
        assert (done.returncode, done.stderr) == (code, ""), done.stdout
        assert done.stdout.startswith("4 frames on cpu")
    done = tool("replay", "x.mcap", "-o", "again.mcap", cwd=robot)
    assert done.stderr.endswith("; python3 -m pip install rosbags mcap lz4 zstandard tqdm\n")


@pytest.mark.ros
def test_the_node_works_and_says_what_snapshots_and_recordings_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROS_HOME", str(tmp_path))
    done = run(NODE)
    assert done.returncode == 0, done.stderr
    mean, *answers = done.stdout.splitlines()
    raw = np.arange(32 * 48, dtype=np.uint8).reshape(32, 48)
    assert float(mean) == pytest.approx(float(np.nanmean(Pipeline(products="dolp", backend="cpu")(raw)["dolp"])))
    assert len(answers) == 2
    assert all("python3 -m pip install rosbags mcap lz4 zstandard tqdm" in answer for answer in answers)
    assert list(tmp_path.rglob("*.mcap")) == []
