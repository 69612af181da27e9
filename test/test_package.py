"""The package as a whole: versions, metadata, documents, layers and names agree; what is installed is complete."""

from __future__ import annotations

import ast
import email
import importlib
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple, Union
from xml.etree import ElementTree as ET

import cv2
import numpy as np
import pytest
from support import ROOT

import polar_pipeline
from polar_pipeline._util.share import share_path
from polar_pipeline.tools.doctor import checks as doctor

PACKAGE = ROOT / "polar_pipeline"
MODULES = sorted(PACKAGE.rglob("*.py"))
TEMPLATES = sorted(PACKAGE.rglob("templates/*"))
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: Modules and subpackages by layer, highest first, as the rows of the document's table: a module imports from its own
#: layer and from those below it.
LAYERS = [
    re.findall(r"`(\w+)(?:/|\.py)`", modules) for modules in re.findall(r"^\| (`.*?) \|", ARCHITECTURE, re.MULTILINE)
]
ROS = {"rclpy", "rcl_interfaces", "sensor_msgs", "std_msgs", "std_srvs", "diagnostic_msgs", "cv_bridge", "launch"}


def name_of(path: Path) -> str:
    """Module name below the package; "" for the package itself."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).replace("__init__", "").rstrip(".")


@lru_cache(maxsize=None)
def nodes_of(path: Path) -> List[ast.AST]:
    """What a file is made of that can import something."""
    kinds = (ast.Import, ast.ImportFrom, ast.Call, ast.If)
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)]


def is_for_types(node: ast.AST) -> bool:
    """Whether a node is what only type checkers read."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@lru_cache(maxsize=None)
def imports_of(path: Path, with_types: bool = True) -> List[str]:
    """Every module that a file imports, at its top or later, by its full name."""
    found: List[str] = []
    others = [] if with_types else [node for node in nodes_of(path) if is_for_types(node)]
    left_out = {id(inner) for node in others for inner in ast.walk(node)}
    for node in (node for node in nodes_of(path) if id(node) not in left_out):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                file = ROOT / Path(*full.split("."))
                found.append(full if file.with_suffix(".py").exists() or file.is_dir() else str(node.module))
    return found


def named_imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports by a text, as `import_module` does; "" where the text is not in the call."""
    for node in nodes_of(path):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                first = node.args[0] if node.args else None
                yield first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def layer_of(module: str) -> int:
    """Place in `LAYERS`; the package itself has the public names of `pipeline`."""
    top = module.split(".", 1)[0] or "pipeline"
    found = [index for index, names in enumerate(LAYERS) if top in names]
    assert found, f"module {module} belongs to no layer; add it to the table in docs/architecture.md"
    return found[0]


def test_every_layer_exists() -> None:
    names = [name for layer in LAYERS for name in layer]
    assert sorted(names) == sorted({name_of(path).split(".")[0] for path in MODULES} - {""})


def test_the_drawing_shows_the_layers() -> None:
    """No module stands above one that imports it."""
    drawing = ARCHITECTURE.split("```")[1]
    drawn = [re.findall(r"(?<![\w/])(\w+)(?:/(?!\w)|\.py)", line) for line in drawing.splitlines()]
    layers = [[layer_of(name) for name in names] for names in drawn if names]
    assert sum(map(len, layers)) > 10
    assert all(max(upper) <= min(lower) for upper, lower in zip(layers, layers[1:])), layers


@pytest.mark.skipif(sys.version_info < (3, 10), reason="this Python does not say what its own modules are")
def test_the_doctor_looks_for_everything_that_is_imported() -> None:
    imported = {name.partition(".")[0] for path in MODULES for name in imports_of(path)}
    imported |= {name.partition(".")[0] for path in MODULES for name in named_imports_of(path) if name}
    foreign = imported - set(sys.stdlib_module_names) - {"polar_pipeline"}
    assert {"numpy", "jinja2", "cupy", "rclpy"} <= foreign, "the search for imports finds too few"
    foreign.remove("typing_extensions")  # for type checkers, which bring it
    foreign.remove("nvidia")  # nvImageCodec, which the check `jpeg` tries
    assert foreign <= {check.topic.partition(".")[0] for check in doctor.run_checks()}


def test_imports_run_downwards() -> None:
    """Also by name, as three modules do: the package its public names, the doctor libraries, the tool its commands."""
    for path in MODULES:
        own = name_of(path)
        by_name = [] if not own or own.startswith("tools.doctor.") or own == "cli.entry" else [*named_imports_of(path)]
        assert "" not in by_name, f"{own} imports a module whose name is not in the call"
        assert not any(name.startswith("polar_pipeline") for name in by_name), f"{own} hides an import from the layers"
        # the package names its public functions, which may be of any layer, for type checkers
        for imported in (*imports_of(path, with_types=bool(own)), *by_name):
            top, _, rest = imported.partition(".")
            if top == "polar_pipeline" and own:  # the package itself names its public objects for type checkers
                if rest.startswith("backends.reference"):
                    assert own.startswith("backends."), f"{own} imports the reference"
                assert layer_of(rest) >= layer_of(own), f"{own} imports {imported}, which lies in a higher layer"
            else:
                assert top not in ROS or own.startswith(("ros.", "tools.")), f"{own} imports {top}; ros/ and tools/ may"
                assert top != "cupy" or own.startswith("backends.cuda."), f"{own} imports cupy; only backends/cuda/ may"


def test_library_needs_no_ros() -> None:
    """With every ROS module blocked, every module that names none still imports."""
    paths = [path for path in MODULES if not {name.split(".")[0] for name in imports_of(path)} & ROS]
    without_ros = [f"polar_pipeline.{name_of(path)}".rstrip(".") for path in paths]
    blocked = f"import sys; sys.modules.update(dict.fromkeys({sorted(ROS)!r})); import {', '.join(without_ros)}"
    subprocess.run([sys.executable, "-c", blocked], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("code", "most"),
    [("import polar_pipeline", 0), ("from polar_pipeline import Pipeline; Pipeline(backend='cpu').close()", 80)],
)
def test_what_needs_no_gpu_loads_nothing_of_it(code: str, most: int) -> None:
    """Importing the package, and computing on the CPU: no module for a GPU, ROS or Dask."""
    show = "import sys; print(*(name for name in sys.modules if name.startswith('polar_pipeline.')), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{code}; {show}"], check=True, cwd=ROOT, stdout=subprocess.PIPE)
    loaded = done.stdout.decode().split()
    unwanted = (
        "polar_pipeline.backends.cuda",
        "polar_pipeline.ros",
        "cupy",
        "nvidia",
        "rclpy",
        "dask",
        "rerun",
        "yaml",
    )
    assert [name for name in loaded if name.startswith(unwanted)] == []
    assert len({name for name in loaded if name.startswith("polar_pipeline.")}) <= most


def test_former_names_of_modules_are_the_modules() -> None:
    """Also of submodules; each stays one module, with its own name and specification."""
    for former, now in (("world", "polarimetry.world"), ("batch.settings", "tools.batch.settings")):
        module = importlib.import_module(f"polar_pipeline.{former}")
        assert module is importlib.import_module(f"polar_pipeline.{now}")
        assert module.__spec__ is not None
        assert module.__name__ == module.__spec__.name == f"polar_pipeline.{now}"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("polar_pipeline.world.nothing")


def folder_of(module: str) -> str:
    """The folder of a module: `live`, `tools.batch`."""
    parts = module.split(".")
    is_below = len(parts) > 1 and (PACKAGE / parts[0] / parts[1]).is_dir()
    return ".".join(parts[: 2 if is_below else 1])


@pytest.mark.parametrize("are_folders", [False, True], ids=["files", "folders"])
def test_no_circle_of_imports(are_folders: bool) -> None:
    needs: Dict[str, Set[str]] = defaultdict(set)
    for path in MODULES:
        own = name_of(path)
        others = [name.partition(".")[2] for name in imports_of(path, with_types=False) if "polar_pipeline" in name]
        if are_folders:
            own, others = folder_of(own), [folder_of(name) for name in others]
        needs[own].update(name for name in others if name not in ("", own))  # the package has names of others
    assert len(needs) > 30
    while True:  # what remains is in a circle, or needs one
        free = [name for name, others in needs.items() if not others & needs.keys()]
        if not free:
            break
        for name in free:
            del needs[name]
    assert not needs, f"a circle, or what needs one: {sorted(needs)}"


# ------------------------------------------------------------------------------------------------ classes and functions


#: Where `Any` may stand in a public signature: messages and nodes of rclpy, values of JSON and YAML files, the node's
#: arguments of `Pipeline`, buffers that `io` takes, modules of CuPy, and the oracle of the tests.
UNTYPED = (
    *("ros/", "tools/bench/", "tools/view/topic_source.py", "live/parameters.py"),
    *("backends/reference/", "backends/cuda/driver.py", "backends/cuda/device.py", "backends/cuda/report.py"),
    *("_util/documents.py", "_util/files.py", "_util/yamlfile.py"),
)


def untyped(source: str) -> Iterator[str]:
    """Public functions and methods whose arguments or result are annotated with `Any`."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name.startswith("_"):
            continue
        given = node.args
        arguments = [*given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
        annotations: List[Union[ast.expr, None]] = [argument.annotation for argument in arguments] + [node.returns]
        names = {name.id for each in annotations if each for name in ast.walk(each) if isinstance(name, ast.Name)}
        if "Any" in names:
            yield node.name


def test_each_class_name_has_one_meaning() -> None:
    found: Dict[str, List[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name_of(path))
    assert {"Pipeline", "CpuBackend", "CudaBackend"} <= set(found)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


def test_public_signatures_are_typed() -> None:
    typed = [path for path in MODULES if not str(path.relative_to(PACKAGE)).startswith(UNTYPED)]
    assert [(name_of(path), name) for path in typed for name in untyped(path.read_text(encoding="utf-8"))] == []


# ------------------------------------------------------------------------------------------------------------ metadata


def test_one_version() -> None:
    """`package.xml`, `__init__.py` (which `setup.py` reads) and the newest dated release of the changelog agree."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert len(headings) > 1, "the changelog has no release"
    assert headings[0] == "[Unreleased]"
    dated = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})", heading) for heading in headings[1:]]
    assert all(dated), f"a release is headed [1.2.3] - 2026-01-31; got {headings[1:]}"
    releases = [match.groups() for match in dated if match]
    assert [day for _, day in releases] == sorted((day for _, day in releases), reverse=True), "newest first"
    in_package_xml = ET.parse(ROOT / "package.xml").findtext("version")
    assert (in_package_xml, releases[0][0]) == (polar_pipeline.__version__, polar_pipeline.__version__)


def test_package_xml() -> None:
    package = ET.parse(ROOT / "package.xml").getroot()
    assert package.get("format") == "3"
    assert package.findtext("name") == PACKAGE.name
    assert package.findtext("export/build_type") == "ament_python"
    assert package.findtext("license") == "Apache-2.0"
    depends = {element.text for element in package.findall("exec_depend")}
    assert {"python3-jinja2", "python3-numpy", "python3-opencv", "rclpy", "std_srvs"} <= depends
    used = {name.split(".")[0] for path in MODULES for name in imports_of(path)} & ROS
    assert used <= depends, "a ROS package is imported but not in package.xml"
    assert depends & ROS <= used | {"launch"}, (
        "a ROS package is in package.xml, and nothing but launch files imports it"
    )
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text(encoding="utf-8")


#: Keys of rosdep's base.yaml and python.yaml -> Ubuntu's packages. A key that rosdep lacks stops `rosdep install`; look
#: it up with `rosdep resolve KEY` before you add it here.
ROSDEP_KEYS = {
    "g++-static": "g++",
    **{f"python3-{name}": f"python3-{name}" for name in ("jinja2", "numpy", "opencv", "pytest", "yaml")},
}


def test_rosdep_has_every_key() -> None:
    """Keys of other kinds than packages of ROS, which have underscores or are of its core."""
    keys = {row.text for row in ET.parse(ROOT / "package.xml").getroot() if row.tag.endswith("depend")}
    assert len(keys) > 15
    ros = {"rclpy", "launch", "ros2launch", "ros2bag"}
    assert {key for key in keys if key not in ros and "_" not in str(key)} == set(ROSDEP_KEYS)


# ----------------------------------------------------------------------------------------------------------- documents


def test_tables_are_up_to_date() -> None:
    tables = runpy.run_path(str(ROOT / "docs" / "tables.py"))
    for name in tables["TABLES"]:
        assert tables["fill"](name) == (ROOT / name).read_text(encoding="utf-8"), (
            "run `.venv/bin/python docs/tables.py`"
        )


def test_pictures_are_up_to_date() -> None:
    """By most of their pixels: labels may differ. OpenCV before 5 has other letters, which the patterns have too."""
    figures = runpy.run_path(str(ROOT / "docs" / "figures.py"))
    for name, paint in figures["PICTURES"].items():
        painted, stored = paint().astype(int), cv2.imread(str(figures["IMAGES"] / name))[..., ::-1]
        assert painted.shape == stored.shape, f"{name}: run `python docs/figures.py`"
        if int(cv2.__version__.split(".")[0]) >= 5:
            difference = np.abs(painted - stored)
            assert (difference > 1).mean() < 0.05, f"{name}: run `python docs/figures.py`"
    for name, draw in figures["CHARTS"].items():
        assert draw() == (figures["IMAGES"] / name).read_text(encoding="utf-8"), f"{name}: run `python docs/figures.py`"


def test_the_site_gets_the_pictures_that_its_pages_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages name each painted picture once; what is painted is a picture of the size of a page, not of one color."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    pictures = importlib.import_module("pictures")
    named = [
        name
        for path in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"^<!-- picture: (.+) -->$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(named) == sorted(pictures.PICTURES)
    for name, data in pictures.painted().items():
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
        height, width, channels = image.shape
        assert (800 < width < 1300, 400 < height < 1100, channels) == (True, True, 3), name
        assert len(data) < 300_000, name
        assert image.std() > 20, name


def test_every_cause_is_documented() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    pairs = re.findall(r'FrameError\(\s*"(\w+)"|(?:refuse|dropped)\("(\w+)"', code)
    causes = {cause for pair in pairs for cause in pair if cause}
    assert len(causes) >= 8, "the search for causes finds too few"
    text = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    tables, warnings = (text.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in ("Causes", "Warnings"))
    assert causes == set(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE))
    names = set(re.findall(r'FrameWarning\(\s*"([\w ]+)"', code))
    assert len(names) >= 8, "the search for causes of warnings finds too few"
    assert names == set(re.findall(r"^\| `(\w+)` \|", warnings, re.MULTILINE))


DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "kernels" / "README.md", ROOT / "frames" / "README.md"]
)

#: Folders of the repository whose files comments name.
TOP_FOLDERS = ("polar_pipeline", "kernels", "test", "docs", "benchmarks", "demo", "launch", "config")


def anchors_of(document: Path) -> Set[str]:
    """The anchors of a document's headings, by the rules of GitHub, which the documentation site shares."""
    text = re.sub(r"^ *```.*?^ *```$", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", document.read_text(encoding="utf-8")):
        if "://" in path:
            continue
        target = document.parent / path if path else document
        assert target.exists(), f"{document.name} links to {path}"
        assert not anchor or anchor in anchors_of(target), f"{document.name} links to {path}#{anchor}"


@pytest.mark.parametrize("folder", ["polar_pipeline", "kernels", "benchmarks", "docs"])
def test_sources_name_files_that_exist(folder: str) -> None:
    """Files in backticks: of a folder of the repository, or by their own name alone."""
    files = [path for name in ("*.py", "*.h", "*.cu*", "*.cpp") for path in (ROOT / folder).rglob(name)]
    named = {
        (path.name, name)
        for path in files
        for name in re.findall(r"`([\w/]+\.(?:py|h|cuh?|cpp|md))`", path.read_text(encoding="utf-8"))
    }
    known = [str(path) for path in (*ROOT.glob("*.*"), *(p for f in TOP_FOLDERS for p in (ROOT / f).rglob("*.*")))]
    assert not {row for row in named if not any(path.endswith(f"/{row[1]}") for path in known)}


# -------------------------------------------------------------------------------------------------------- installation


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the packaging reads, so that builds leave nothing in the checkout."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("needs setuptools")
    folder = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "package.xml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy2(ROOT / name, folder)  # with its time: the kernels that were built from it are not built again
    for name in ("polar_pipeline", "resource", "launch", "config", "kernels"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def shared_files() -> Set[str]:
    """What belongs below share/polar_pipeline."""
    found = [path for name in ("launch", "config", "kernels") for path in (ROOT / name).rglob("*.*")]
    files = [path for path in found if not {"__pycache__", "cpu"} & {*path.relative_to(ROOT).parts}]
    assert len(files) > 5
    return {str(path.relative_to(ROOT)) for path in files} | {"package.xml"}


def test_install_commands_name_a_path() -> None:
    """The package is in no index: `pip install polar_pipeline` finds nothing, or something else."""
    sources = [*(ROOT / "polar_pipeline").rglob("*.py"), *(ROOT / "launch").glob("*.py"), *ROOT.glob("demo/*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {command.group()}"
        for path in [*sources, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for command in re.finditer(r"pip3? install [^\n;`]*?(?<!/path/to/)polar[_-]pipeline\b", path.read_text("utf-8"))
    ]
    assert found == []


def kernels_of_the_cpu() -> Set[str]:
    """The libraries that were built in the checkout."""
    return {str(path.relative_to(ROOT)) for path in (PACKAGE / "backends" / "cpu").glob("kernels_*.so")}


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build a distribution of a kind, `sdist` or `wheel`, into a folder."""
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=source, check=True, stdout=subprocess.DEVNULL)
    (made,) = folder.iterdir()
    return made


def test_source_distribution(source: Path, tmp_path: Path) -> None:
    """It has what the kernels are built from, and no kernels."""
    archive = build("sdist", source, tmp_path)
    with tarfile.open(str(archive)) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "kernels" / "cpu").iterdir()}
    assert sources | shared_files() | {"setup.py", "polar_pipeline/polarimetry/coefficients.py"} <= names
    assert not {name for name in names if name.endswith(".so")}


def test_wheel(source: Path, tmp_path: Path) -> None:
    wheel = build("wheel", source, tmp_path)
    assert not wheel.name.endswith("-any.whl"), "it has compiled code"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name) for name in names if name.endswith(".dist-info/METADATA"))
        (scripts,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    modules = {str(path.relative_to(ROOT)) for path in MODULES}
    assert modules | kernels_of_the_cpu() | {"polar_pipeline/py.typed"} <= names
    share = {name.split(".data/data/share/polar_pipeline/")[1] for name in names if "share/polar_pipeline/" in name}
    assert share == shared_files()
    fields = email.message_from_bytes(metadata)
    assert fields["Version"] == polar_pipeline.__version__
    required = {re.split(r"[ <>=;]", line)[0] for line in fields.get_all("Requires-Dist") if "extra ==" not in line}
    templates = {str(path.relative_to(ROOT)) for path in TEMPLATES}
    assert {path.parent.parent.name for path in TEMPLATES} == {"batch", "calibrate", "html", "replay"}
    assert templates <= names
    assert required == {"numpy", "opencv-python-headless", "pyyaml", "jinja2"}
    extras = {
        "ros",
        "recordings",
        "batch",
        "view",
        "video",
        "matlab",
        "cuda11",
        "cuda12",
        "cuda13",
        "jpeg-cuda12",
        "jpeg-cuda13",
    }
    assert extras | {"dev", "docs"} == set(fields.get_all("Provides-Extra"))
    assert all(name in scripts for name in ("polar_pipeline_node", "polar_pipeline_rig", "polar-pipeline"))


#: Runs setup.py as in an environment of virtualenv or uv before they left this out: no file sets folders there.
WITHOUT_FOLDERS_FROM_FILES = """
import runpy
from setuptools.dist import Distribution

parse = Distribution.parse_config_files


def without_folders(self, *arguments, **options):
    parse(self, *arguments, **options)
    for name in ("purelib", "platlib", "headers", "scripts", "data"):
        self.get_option_dict("install").pop("install_" + name, None)


Distribution.parse_config_files = without_folders
runpy.run_path("setup.py", run_name="__main__")
"""


#: What bloom's `debian/rules` add, as the package has no `setup.cfg` with `install_scripts`.
BLOOM = ["--install-scripts", "$base/bin"]


@pytest.mark.parametrize(
    ("setup", "more"),
    [(["setup.py"], []), (["-c", WITHOUT_FOLDERS_FROM_FILES], []), (["setup.py"], BLOOM)],
    ids=["venv", "virtualenv", "debian"],
)
def test_colcon_layout(setup: List[str], more: List[str], source: Path, tmp_path: Path) -> None:
    """What colcon runs for an ament_python package, and what `ros2 run`, `ros2 launch` and `share_path` look for."""
    install = ["install", "--single-version-externally-managed", "--prefix", str(tmp_path), "--record", "record.txt"]
    install += more
    command = ["env", "PYTHONDONTWRITEBYTECODE=1", sys.executable, *setup, "-q", "egg_info", "build", *install]
    done = subprocess.run(command, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode()
    assert (tmp_path / "lib" / "polar_pipeline" / "polar_pipeline_node").is_file()
    assert (tmp_path / "share" / "ament_index" / "resource_index" / "packages" / "polar_pipeline").is_file()
    share = tmp_path / "share" / "polar_pipeline"
    assert {str(path.relative_to(share)) for path in share.rglob("*") if path.is_file()} == shared_files()
    (site,) = tmp_path.glob("lib/python*/site-packages")
    installed = {str(path.relative_to(site)) for path in (site / "polar_pipeline").rglob("*") if path.is_file()}
    shipped = {str(path.relative_to(ROOT)) for path in (*MODULES, *TEMPLATES)}
    shipped |= kernels_of_the_cpu() | {"polar_pipeline/py.typed", "polar_pipeline/backends/network.npz"}
    assert {path for path in installed if "__pycache__" not in path} == shipped
    (requires,) = site.glob("*.egg-info/requires.txt")
    assert requires.read_text().lstrip().startswith("["), "pip's requirements would be looked up at every start"
    # -S: without the editable installation of the checkout
    where = (
        "import sys; sys.path[:0] = sys.argv[1:]; "
        "from polar_pipeline._util.share import share_path; print(share_path('kernels'))"
    )
    found = subprocess.run(
        [sys.executable, "-S", "-c", where, str(site)], cwd=tmp_path, check=True, stdout=subprocess.PIPE
    )
    assert found.stdout.decode().strip() == str(share / "kernels")


def test_links_of_colcon_to_the_executables(source: Path) -> None:
    """`colcon build --symlink-install` runs `setup.py develop`, which newer setuptools no longer have."""
    read = "import setuptools, distutils.core; setup = distutils.core.run_setup('setup.py', stop_after='init'); "
    read += "print(setup.get_option_dict('develop')['script_dir'][1])"
    shown = subprocess.run([sys.executable, "-c", read], cwd=source, check=True, stdout=subprocess.PIPE)
    assert shown.stdout.decode().strip() == "$base/lib/polar_pipeline"


def test_share_path() -> None:
    assert share_path("kernels") == ROOT / "kernels"
    with pytest.raises(FileNotFoundError, match=r"nothing\.cu"):
        share_path("kernels", "nothing.cu")


def texts_of_the_repository() -> Iterator[Path]:
    """Texts that the repository holds. Folders of environments and results, which hold much more, are not entered."""
    others = ("build", "install", "log", "work", "corpus")
    endings = (".md", ".py", ".yaml", ".xml", ".json", ".toml", ".cfg", ".j2", ".css")
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith(".") and name not in others]
        for name in names:
            is_text = name.endswith((*endings, ".cu", ".cuh", ".cpp", ".hpp", ".h")) or name == "Makefile"
            if is_text and not name.startswith("."):
                yield Path(folder, name)


def test_code_speaks_to_no_machine_in_particular() -> None:
    """No absolute paths of a developer's machine in what the repository holds."""
    found: Set[Tuple[str, str]] = set()
    searched: Set[str] = set()
    for path in texts_of_the_repository():
        text = path.read_text(encoding="utf-8")
        searched.add(path.suffix)
        found |= {(str(path.relative_to(ROOT)), hit) for hit in re.findall(r"(?<![\w.~])/(?:root|work|tmp)/\S+", text)}
    assert not found
    assert {".md", ".py", ".yaml", ".xml", ".json", ".toml", ".j2", ".css", "", ".cu", ".cpp"} <= searched


def test_formulas_of_products_stand_in_one_header() -> None:
    """Roots, angles and deviations by noise: kernels and CPU call the formulas, and have none of their own."""
    of_formulas = re.compile(r"\b(ATAN_\w+|SIGMA_\w+|AOLP_SIGMA_MAX|fast_sqrt|fast_exp2|sqrtf?|atan2?f?|expf?)\b")
    found = {
        path.name: of_formulas.findall(re.sub(r"//.*", "", path.read_text(encoding="utf-8")))
        for path in sorted((ROOT / "kernels").rglob("*"))
        if path.suffix in (".cu", ".cuh", ".h", ".hpp", ".cpp") and path.name != "cuda.cuh"
    }
    assert "ATAN_9" in found.pop("formulas.h")
    assert not {name: words for name, words in found.items() if words}
