"""What the doctor says of a machine that lacks something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Iterator

import pytest
from support import ROOT, run_python

from polar_pipeline._util.jpeg import encode_with_opencv
from polar_pipeline.backends.cpu import library as kernels
from polar_pipeline.backends.cuda.backend import problem
from polar_pipeline.ros import fast_dds
from polar_pipeline.tools.doctor import checks as doctor


def states() -> dict:
    checks = doctor.run_checks()
    found = {check.topic: check for check in checks}
    assert len(found) == len(checks), "each is listed once"
    return found


def test_a_working_library_is_ok() -> None:
    found = states()
    for topic in ("polar_pipeline", "python", "numpy", "cv2", "rosbags", "backend cpu"):
        assert found[topic].state == "ok", found[topic]


def test_missing_ros_and_gpu_are_said_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rclpy", "cupy", "jinja2"):
        monkeypatch.setitem(sys.modules, name, None)  # import raises ImportError
    found = states()
    assert found["rclpy"].state == "optional"
    assert "no live node" in found["rclpy"].text
    assert found["jinja2"].state == "optional"
    assert "no reports" in found["jinja2"].text
    assert found["gpu"].state == "optional"
    assert "CuPy" in found["gpu"].text


#: What CuPy 13 says where there is no driver, shortened.
BANNER = """
================================================================
Failed to import CuPy.

If you installed CuPy via wheels (cupy-cudaXXX), make sure that the package matches with the version of CUDA installed.

Original error:
  ImportError: libcuda.so.1: cannot open shared object file: No such file or directory
================================================================
"""


def test_a_library_that_is_there_but_broken_says_why_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text(f"raise ImportError({BANNER!r})", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    problem.cache_clear()
    found = states()
    problem.cache_clear()
    for topic in ("cupy", "gpu", "backend cuda"):
        assert found[topic].state == "optional"
        assert "libcuda.so.1: cannot open shared object file" in found[topic].text
        assert "\n" not in found[topic].text
        assert "not installed" not in found[topic].text


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("tqdm", "match 1:\n  case (", "tqdm.py, line "),  # for another Python
        *((name, "raise OSError('libfoo.so: cannot open')", "libfoo.so") for name in ("tqdm", "cupy", "rclpy")),
    ],
)
def test_a_broken_library_does_not_end_the_checks(
    name: str, code: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    problem.cache_clear()
    found = states()
    problem.cache_clear()
    topics = {"cupy": ("cupy", "gpu", "nvrtc", "backend cuda"), "rclpy": ("rclpy", "middleware")}
    for topic in topics.get(name, (name,)):
        assert found[topic].state == "optional"
        assert text in found[topic].text


def test_a_middleware_that_is_not_installed_does_not_end_the_doctor() -> None:
    """ROS ends any process that imports rclpy then; the other checks are made all the same."""
    pytest.importorskip("rclpy")
    done = run_python("-m", "polar_pipeline", "doctor", env={"RMW_IMPLEMENTATION": "rmw_nothing_cpp"})
    assert done.returncode == 0, done.stderr
    rows = {line[9:28].strip(): line for line in done.stdout.splitlines()}
    assert rows["middleware"].startswith("problem")
    assert "unset RMW_IMPLEMENTATION, or sudo apt install ros-" in rows["middleware"]
    assert "-rmw-nothing-cpp" in rows["middleware"]
    assert {"numpy", "cameras"} & {*rows}
    headings = [line for line in done.stdout.splitlines() if line.endswith(":") and " " not in line]
    assert headings == ["Library:", "GPU:", "ROS:", "Camera:", "Robot:"]


def test_missing_kernels_of_the_cpu_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert states()["cpu kernels"].state == "ok"
    monkeypatch.setattr(kernels, "FOLDER", tmp_path)
    kernels.load_kernels.cache_clear()
    found = states()
    kernels.load_kernels.cache_clear()
    assert found["backend cpu"].state == "ok"
    assert found["cpu kernels"].state == "problem"
    assert "install g++" in found["cpu kernels"].text


def test_what_encodes_jpeg_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "backend_problem", lambda _: "no GPU")
    assert doctor._jpeg() == doctor.Check("jpeg", "ok", "OpenCV, as no GPU computes")
    monkeypatch.setattr(doctor, "backend_problem", lambda _: None)
    for error, state, text in (
        (
            ModuleNotFoundError("No module named 'nvidia'"),
            "ok",
            "OpenCV on the CPU; nvImageCodec (pip extras jpeg-cuda12, jpeg-cuda13) is not installed",
        ),
        *(
            (error("no nvJPEG"), "optional", "OpenCV on the CPU, as nvImageCodec does not work: no nvJPEG")
            for error in (RuntimeError, ImportError)
        ),
    ):

        def fail(error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(doctor, "make_gpu_encoder", fail)
        assert doctor._jpeg() == doctor.Check("jpeg", state, text)
    monkeypatch.setattr(doctor, "make_gpu_encoder", lambda: encode_with_opencv)
    assert doctor._jpeg() == doctor.Check("jpeg", "ok", "nvImageCodec on the GPU")


#: ROS and tools of the system, of which only `polar-pipeline env` runs.
SHELL = """
for name in source sudo python3 cp rosdep colcon; do eval "$name() { :; }"; done
ros2() { [ "$*" != "run polar_pipeline polar-pipeline env" ] || "$PYTHON" -m polar_pipeline env; }
"""


def installations() -> Iterator[str]:
    """Commands in the documents that build and source the package for ROS."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        blocks = re.findall(r"^```sh\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        yield from (pytest.param(block, id=path.name) for block in blocks if "colcon build" in block)


@pytest.mark.parametrize("commands", list(installations()))
def test_documented_installations_name_the_profile(commands: str, tmp_path: Path) -> None:
    """By the one variable that the installed Fast DDS reads; a user's own profile stays."""
    (tmp_path / "libfastdds.so.3").touch()
    read = "FASTDDS_DEFAULT_PROFILES_FILE"
    variables = {name: value for name, value in os.environ.items() if not name.endswith("_DEFAULT_PROFILES_FILE")}
    variables.update(PYTHON=sys.executable, PYTHONPATH=str(ROOT), HOME=str(tmp_path), LD_LIBRARY_PATH=str(tmp_path))
    variables["_ROS_WHEELS_BOOTSTRAP_COMPLETE"] = "1"  # wheels of ROS would put their own libraries first
    shipped = {read: str(ROOT / "config" / "fastdds_large_frames.xml")}
    own = {read: "/own profile.xml"}
    for given, wanted in (({}, shipped), (own, own)):
        shell = ["bash", "-c", f"{SHELL}{commands}env"]
        done = subprocess.run(shell, env={**variables, **given}, stdout=subprocess.PIPE, check=True)
        exported = dict(line.split("=", 1) for line in done.stdout.decode().splitlines() if "=" in line)
        assert {name: value for name, value in exported.items() if name.endswith("_PROFILES_FILE")} == wanted


def test_the_transport_profile_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`FASTDDS_...` is read by Fast DDS 3 only, which came with Kilted (rmw_fastrtps #862); its library decides."""
    new, old = "FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"
    profile = tmp_path / "there.xml"
    profile.write_text("<profiles/>")
    monkeypatch.setitem(sys.modules, "rclpy", SimpleNamespace(__spec__=object()))  # also where there is no ROS
    monkeypatch.delenv("RMW_IMPLEMENTATION", raising=False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setenv("ROS_DISTRO", "kilted")  # decides nothing: it is not set where ROS came as wheels

    def install(name: str, *libraries: str) -> Path:
        """A prefix of ROS with these libraries; where its rclpy is."""
        package = tmp_path / name / "lib" / "python3.12" / "site-packages" / "rclpy"
        package.mkdir(parents=True)
        for library in libraries:
            (tmp_path / name / "lib" / library).touch()
        return package / "__init__.py"

    def judged(origin: object, **named: Path) -> doctor.Check:
        for name in (new, old):
            monkeypatch.setenv(name, str(named.get(name, "")))
        monkeypatch.setitem(sys.modules, "rclpy", SimpleNamespace(__spec__=SimpleNamespace(origin=origin)))
        (found,) = fast_dds.profile_checks()
        return found

    kilted = str(install("kilted", "libfastdds.so.3.2.2"))
    jazzy = str(install("jazzy", "libfastrtps.so", "libfastrtps.so.2.14"))
    nothing = str(install("nothing"))
    # a new Fast DDS reads the old name too; with both it complains
    for origin, name in ((kilted, new), (jazzy, old), (nothing, old), (None, old)):
        assert f"set {name} to" in judged(origin).text
        assert list(fast_dds.transport_environment()) == [name]
        assert judged(origin, **{name: tmp_path / "gone.xml"}).state == "problem"
        assert judged(origin, **{name: profile}).state == "ok"
        assert fast_dds.transport_environment() == {}
    assert judged(jazzy, **{new: profile}).state == "problem"
    assert judged(kilted, **{old: profile}).state == "ok"  # deprecated, and read
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path / 'empty'}:{tmp_path / 'jazzy' / 'lib'}")
    assert f"set {old} to" in judged(kilted).text  # the linker looks there first
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_zenoh_cpp")
    assert list(fast_dds.profile_checks()) == []
