"""Tests of recorded frames, for `test/` of your own package: put drive.mcap and golden.mcap beside this file."""

import subprocess
from pathlib import Path

HERE = Path(__file__).parent
BAG, GOLDEN = HERE / "drive.mcap", HERE / "golden.mcap"
RESULTS = Path("replay_results")
#: Ctrl-C after two minutes, so that no node stays behind.
LIMIT = ["timeout", "--signal=INT", "120"]


def run(*command: object) -> None:
    """Run a command; the test fails with its output if it does not succeed."""
    words = [*LIMIT, *map(str, command)]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def test_products_equal_the_golden_recording() -> None:
    """Frame by frame, without the node."""
    RESULTS.mkdir(exist_ok=True)
    results = ["--junit", RESULTS / "replay.xml", "--report", RESULTS / "replay.html", "--force"]
    tool = ["ros2", "run", "polar_pipeline", "polar-pipeline"]
    run(*tool, "replay", BAG, "--compare", GOLDEN, *results)


def test_every_frame_comes_out_of_the_node_and_is_equal() -> None:
    """With the live node and `ros2 bag play`."""
    run("ros2", "launch", "polar_pipeline", "replay.launch.py", f"bag:={BAG}", f"compare:={GOLDEN}")
