"""The location of the files beside the Python code: kernels, configs and launch files."""

from __future__ import annotations

from pathlib import Path


def share_path(*parts: str) -> Path:
    """Return a file or folder of the package's share folder, wherever it is installed.

    Installed by colcon or pip, that is `<prefix>/share/polar_pipeline`; in a checkout or an editable install, the
    checkout itself.

    Args:
        parts: The path below the share folder, such as `"config", "fastdds_large_frames.xml"`.

    Raises:
        FileNotFoundError: The installation is incomplete.
    """
    here = Path(__file__).resolve()
    for parent in here.parents:
        for share in (parent / "share" / "polar_pipeline", parent):
            if (share / "package.xml").is_file() and (share / "kernels").is_dir():
                path = share.joinpath(*parts)
                if path.exists():
                    return path
                raise FileNotFoundError(f"{path} is missing from this installation of polar_pipeline")
    raise FileNotFoundError(f"no share folder of polar_pipeline above {here}: reinstall the package")
