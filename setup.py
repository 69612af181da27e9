"""Packaging for pip and for colcon (ament_python)."""

import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.install import install

NAME = "polar_pipeline"
SCRIPTS = f"$base/lib/{NAME}"  # of colcon
ROOT = Path(__file__).resolve().parent  # colcon's --symlink-install runs a link to this file
VERSION = re.search(r'^__version__ = "(.+)"', (ROOT / NAME / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
if VERSION is None:
    raise SystemExit(f"{NAME}/__init__.py has no __version__")

REQUIRES = ["numpy>=1.17", "opencv-python-headless>=4.2", "pyyaml"]
REQUIRES += ["jinja2>=2.10"]  # 2.10 is that of Ubuntu 20.04
# colcon runs this file directly, and there package.xml names the dependencies. pip's names must stay out: apt's OpenCV
# does not carry them, and the scripts that old setuptools writes (JetPack 5) look up every one of them at each start.
if "setuptools.build_meta" not in sys.modules:
    REQUIRES = []

ROS = ["rclpy", "sensor-msgs", "std-msgs", "std-srvs", "diagnostic-msgs", "rmw-fastrtps-cpp"]
RECORDINGS = ["rosbags>=0.9.23", "mcap>=1.6", "lz4", "zstandard", "tqdm>=4.30"]
TEST = [
    *RECORDINGS,
    "pytest>=7",
    "pytest-timeout",
    "pytest-rerunfailures",
    "pytest-xdist>=3",
    "hypothesis",
    "scikit-image>=0.19",
    "colour-demosaicing",
    "cv-bridge",  # pure Python; reads images as the nodes of others do
]
VIDEO = ["av>=12.3"]  # 12.3 is the last for Python 3.8
BATCH = [*RECORDINGS, "dask[distributed]>=2023.5", "fsspec[http]>=2023.1", "pyarrow>=10"]
TEST += [*BATCH, *VIDEO]
TEST += ["pandas", "duckdb; python_version >= '3.9'"]  # read tables of frames; DuckDB has no wheels for 3.8
TEST += ["setuptools", "wheel"]  # to build what they check
TEST += ["pyelftools"]  # reads compiled kernels
TEST += ["argcomplete>=2"]  # completes the command line in shells
LINT = ["ruff>=0.9", "mypy>=1.14", "vermin>=1.6"]
LINT += ["clang-format==19.1.7"]  # each version formats somewhat differently; this one has wheels for Python 3.8
DOCS = ["mkdocs>=1.6,<2", "mkdocs-material>=9.7", "mkdocstrings[python]>=1.0"]
NVIMGCODEC = "nvidia-nvimgcodec"  # 0.9 is the version that was tried
NVRTC = "nvidia-cuda-nvrtc-cu12"  # 12 is the last to know sm_72
PC = "sys_platform == 'linux' and platform_machine == 'x86_64'"


#: Python and machine of JetPack 7, whose OpenCV and ROS are built against NumPy 1.
JETPACK7 = "python_version >= '3.11' and python_version < '3.13' and platform_machine == 'aarch64'"
#: All later systems and PCs.
LATER = "python_version >= '3.13' or (python_version >= '3.11' and platform_machine != 'aarch64')"


def cupy(name, oldest):
    """Requirements of CuPy that leave NumPy at 1.x where OpenCV and ROS of the system are built against it.

    CuPy 14 brings NumPy 2, with which those cannot be imported; CuPy 12.3 takes NumPy 1.20 to 1.26, and 13.6 from 1.22
    on. Python 3.8 and 3.10 are those of Ubuntu 20.04 and 22.04 (JetPack 5 and 6), 3.12 on arm64 that of JetPack 7.

    Args:
        name: Of the wheel.
        oldest: Versions for Python up to 3.10.
    """
    return [
        f"{name}{oldest}; python_version < '3.11'",
        "numpy>=1.20,<2; python_version < '3.11'",
        f"{name}>=13.6,<14; {JETPACK7}",
        f"numpy>=1.22,<2; {JETPACK7}",
        f"{name}>=12.3; {LATER}",
    ]


# Rerun 0.23 brings NumPy 2, with which OpenCV and ROS of older systems cannot be imported; 0.22 takes 1.23 to 1.26. It
# cannot be imported on Python 3.8.
VIEW = [
    *RECORDINGS,
    "rerun-sdk>=0.21,<0.22; python_version < '3.9'",
    "rerun-sdk>=0.22,<0.23; python_version >= '3.9' and python_version < '3.11'",
    "numpy>=1.23,<2; python_version < '3.11'",
    "pyarrow<26; python_version < '3.11'",  # later ones need NumPy 2
    f"rerun-sdk>=0.22,<0.23; {JETPACK7}",
    f"numpy>=1.26,<2; {JETPACK7}",
    f"pyarrow<26; {JETPACK7}",
    f"rerun-sdk>=0.41; {LATER}",
]


EXTRAS = {
    # ROS 2 itself as wheels, for machines without a ROS installation; on others leave this extra out.
    "ros": [f"ros-{name}; python_version >= '3.10' and sys_platform == 'linux'" for name in ROS],
    # With the compiler of the kernels, for machines without a CUDA toolkit; a Jetson has one.
    "cuda11": [*cupy("cupy-cuda11x", ">=12.3,<13"), f"nvidia-cuda-nvrtc-cu11; {PC}"],
    "cuda12": [*cupy("cupy-cuda12x", ">=12.3,<13"), f"{NVRTC}; {PC}"],
    "cuda13": [*cupy("cupy-cuda13x", ">=13.6,<14"), f"nvidia-cuda-nvrtc>=13; {PC}"],
    # JPEG by the GPU, for the compressed topics of the live node.
    "jpeg-cuda12": [f"{NVIMGCODEC}-cu12[nvjpeg]>=0.9; python_version >= '3.9'"],
    "jpeg-cuda13": [f"{NVIMGCODEC}-cu13[nvjpeg]>=0.9; python_version >= '3.9'"],
    # Recordings of messages: rosbag2, mcap, ROS 1 bags; reading and writing, with a progress bar.
    "recordings": RECORDINGS,
    # Many recordings on many cores, GPUs or machines (`polar-pipeline batch`).
    "batch": BATCH,
    # Products in the Rerun viewer (`polar-pipeline view`).
    "view": VIEW,
    # MAT files of MATLAB.
    "matlab": ["scipy>=1.3"],
    # Results as a video.
    "video": VIDEO,
    # ptxas of the toolkit is the oracle of what a kernel takes of a device
    "dev": [*TEST, *VIEW, f"{NVRTC}; {PC}", f"nvidia-cuda-nvcc-cu12; {PC}"]
    + [f"{NVIMGCODEC}-cu12>=0.9; python_version >= '3.9' and {PC}"]  # encodes without a GPU too
    + [f"{tool}; python_version >= '3.10'" for tool in LINT],
    # Builds the documentation site (`make docs`).
    "docs": [f"{tool}; python_version >= '3.10'" for tool in DOCS],
}


class Install(install):
    """`setup.py install`, which colcon runs: executables go to lib/<package>, where `ros2 run` looks.

    pip names the folder itself, bin/. This is not in `setup.cfg`, as is usual for ROS: Python environments of older
    versions of virtualenv and uv ignore it there, and pip on Python 3.8 and 3.9 obeys it in the checkout.
    """

    def initialize_options(self):
        """Preset the folder. setuptools puts the prefix in place of `$base`."""
        super().initialize_options()
        self.install_scripts = SCRIPTS

    def finalize_options(self):
        """Keep the folder where Debian's build names the default: bloom writes `--install-scripts $base/bin`."""
        if self.install_scripts == "$base/bin":
            self.install_scripts = SCRIPTS
        super().finalize_options()


#: What the CPU kernels are compiled from.
SOURCES = [*sorted((ROOT / "kernels").glob("*.h")), *sorted((ROOT / "kernels" / "cpu").glob("*"))]
#: Square roots are vectorized only if they need not set errno, choices only if comparisons need not trap. NaN and
#: infinities keep their meaning.
FLAGS = ("-std=c++14", "-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-pthread")
#: Instruction sets that the kernels are built for, of each processor family; `backends/cpu/library.py` chooses.
LEVELS = {
    "x86_64": {
        "sse4": ("-march=x86-64", "-msse4.2", "-mpopcnt"),
        "avx2": ("-march=haswell", "-mtune=generic"),
        "avx512": ("-march=icelake-client", "-mtune=znver2"),  # tuned for Intel's, vectors have half of the width
    }
}


def compiler():
    """The C++ compiler's command: what `CXX` holds, else the first one of the usual names; None if there is none."""
    named = shlex.split(os.environ.get("CXX", ""))
    for program, *arguments in [named] if named else [["c++"], ["g++"], ["clang++"]]:
        path = shutil.which(program)
        if path:
            return [path, *arguments]
    return None


def levels():
    """Names of the instruction sets -> the compiler's flags."""
    command, target = compiler(), platform.machine()
    if command:
        asked = subprocess.run([*command, "-dumpmachine"], stdout=subprocess.PIPE, check=False)
        target = asked.stdout.decode() if asked.returncode == 0 else target
    return LEVELS.get(re.split(r"[-\s]", target)[0], {"base": ()})


class BuildKernels(build_ext):
    """`build_ext` for the CPU kernels: a library for each instruction set, by the C++ compiler alone.

    The libraries are loaded by ctypes, so that they need no headers of Python. Where one cannot be built, the
    installation goes on without it.
    """

    user_options = [  # noqa: RUF012 - a list is what distutils takes
        *build_ext.user_options,
        ("levels=", None, "instruction sets to build for, separated by commas; default: all"),
    ]

    def initialize_options(self):
        """Preset no instruction sets, which means all."""
        super().initialize_options()
        self.levels = None

    def get_ext_filename(self, fullname):
        """The same name for every version of Python."""
        return str(Path(*fullname.split("."))) + ".so"

    def build_extensions(self):
        """Build the libraries, and forget those that cannot be built."""
        if self.levels:
            names = [f"{NAME}.backends.cpu.kernels_{level}" for level in self.levels.split(",")]
            self.extensions = [ext for ext in self.extensions if ext.name in names]
        with ThreadPoolExecutor() as pool:
            self.extensions = [ext for ext in self.extensions if self.build_library(ext, pool)]
        if not self.extensions:
            print(
                f"{NAME}: WARNING: no CPU kernels were built, so that frames will take seconds on the CPU. "
                "Install a C++ compiler (sudo apt install g++), then install again.",
                file=sys.stderr,
            )

    def build_library(self, ext, pool):
        """Build a library by several processes of the compiler; returns whether it is there.

        One that lies in the checkout already, where editable installations put it, is copied unless a source is newer.
        """
        library, former = Path(self.get_ext_fullpath(ext.name)), ROOT / self.get_ext_filename(ext.name)
        library.parent.mkdir(parents=True, exist_ok=True)
        files = [ROOT / "setup.py", ROOT / NAME / "polarimetry" / "coefficients.py", *SOURCES]
        if not self.force and former.exists() and former.stat().st_mtime > max(file.stat().st_mtime for file in files):
            shutil.copy2(str(former), str(library))
            return True
        command = compiler()
        if command is None:
            return False
        constants = runpy.run_path(str(ROOT / NAME / "polarimetry" / "coefficients.py"))
        numbers = {**constants["literals"](), **constants["ssim_literals"]()}
        flags = [*FLAGS, *ext.extra_compile_args, *(f"-D{name}={value}" for name, value in sorted(numbers.items()))]
        folder = Path(self.build_temp, ext.name)
        folder.mkdir(parents=True, exist_ok=True)
        objects = {source: str(folder / Path(source).with_suffix(".o").name) for source in ext.sources}

        def run(*arguments):
            return subprocess.call([*command, *flags, *arguments]) == 0

        built = pool.map(lambda source: run("-c", str(ROOT / source), "-o", objects[source]), objects)
        if all(list(built)) and run("-shared", *objects.values(), "-o", str(library)):
            return True
        print(f"{NAME}: WARNING: {ext.name} was not built (see the compiler's messages above)", file=sys.stderr)
        return False


def shared(*patterns):
    """(folder, files) below share/polar_pipeline for every match, keeping the folders."""
    files = sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())
    folders = sorted({path.parent.relative_to(ROOT) for path in files})
    return [
        (
            f"share/{NAME}/{folder}".rstrip("/."),
            [str(path.relative_to(ROOT)) for path in files if path.parent == ROOT / folder],
        )
        for folder in folders
    ]


setup(
    name=NAME,
    version=VERSION.group(1),
    description="Real-time polarization imaging: raw mosaic frames in, Stokes, DoLP, AoLP and image quality out",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    classifiers=["Programming Language :: Python :: 3", "Topic :: Scientific/Engineering :: Image Processing"],
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    ext_modules=[
        Extension(
            f"{NAME}.backends.cpu.kernels_{level}",
            [str(path.relative_to(ROOT)) for path in SOURCES if path.suffix == ".cpp"],
            extra_compile_args=list(flags),
        )
        for level, flags in levels().items()
    ],
    package_data={NAME: ["py.typed", "*/templates/*", "*/*/templates/*", "backends/network.npz"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        *shared("package.xml", "launch/*.py", "config/*", "config/tuned/*", "kernels/*"),
    ],
    python_requires=">=3.8",
    install_requires=REQUIRES,
    extras_require=EXTRAS,
    zip_safe=False,
    cmdclass={"install": Install, "build_ext": BuildKernels},
    options={"develop": {"script_dir": SCRIPTS}},  # colcon build --symlink-install
    entry_points={
        "console_scripts": [
            f"{NAME}_node = {NAME}.node:main",
            f"{NAME}_rig = {NAME}.node:rig",
            f"polar-pipeline = {NAME}.cli:main",
        ],
    },
)
