"""Parameters asked of a running node, which may answer with anything."""
# ruff: noqa: E402 - rclpy may be missing

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

rclpy = pytest.importorskip("rclpy")
pytest.importorskip("yaml")
from rcl_interfaces.msg import ParameterValue
from rcl_interfaces.srv import GetParameters
from rclpy.parameter import Parameter
from spinner import Spinner
from support import ROOT, TIMEOUT

from polar_pipeline.ros.dump import read_parameters
from polar_pipeline.ros.parameters import PARAMETERS
from polar_pipeline.ros.preset import changed, from_yaml, to_yaml

pytestmark = pytest.mark.ros
DEFAULTS = {name: Parameter(name, value=row.default).get_parameter_value() for name, row in PARAMETERS.items()}


class Response:
    """Sends what a service answers, but not the first times: as where the node has not discovered its client."""

    def __init__(self, send: Callable[..., None], lost: int) -> None:
        self._send, self._lost = send, lost

    def __call__(self, *answer: Any) -> None:
        self._lost -= 1
        if self._lost < 0:
            self._send(*answer)


@pytest.fixture(name="forge")
def fixture_forge() -> Iterator[Callable[[List[Any]], None]]:
    """Starts a program under the node's name, which gives these values."""
    context = rclpy.Context()
    context.init()
    node = rclpy.create_node("front", context=context, start_parameter_services=False)
    spinner = Spinner(context, node)

    def start(values: List[Any], lost: int = 0, seconds: float = 0.0) -> None:
        def answer(_: Any, response: Any) -> Any:
            time.sleep(seconds)
            response.values = values
            return response

        service = node.create_service(GetParameters, "/front/get_parameters", answer)
        service.send_response = Response(service.send_response, lost)

    yield start
    spinner.close()
    node.destroy_node()
    context.shutdown()


def test_requests_whose_responses_are_lost_are_repeated(forge: Any) -> None:
    forge(list(DEFAULTS.values()), lost=2)
    assert set(read_parameters("front", TIMEOUT)) == set(PARAMETERS)


def test_slow_nodes_are_waited_for(forge: Any) -> None:
    """Each answer takes longer than the request that follows."""
    forge(list(DEFAULTS.values()), seconds=2.5)
    assert set(read_parameters("front", TIMEOUT)) == set(PARAMETERS)


def test_values_come_as_they_are(forge: Any, tmp_path: Path) -> None:
    changes = {
        "snapshot.folder": 'a "b"\n\x1b[2J偏光',
        "raw.flip": [True, False],
        "min_intensity": 1e-6,
        "threads": 257,
    }
    values = {**DEFAULTS, **{name: Parameter(name, value=v).get_parameter_value() for name, v in changes.items()}}
    values["display.gain"] = ParameterValue()  # that this version of the node has not
    forge(list(values.values()))
    found = read_parameters("front", TIMEOUT)
    assert set(found) == set(PARAMETERS) - {"display.gain"}
    assert changed(found) == changes
    path = tmp_path / "front.yaml"
    path.write_text(to_yaml({name: value for name, value in found.items() if name != "threads"}, "front"))
    assert changed(from_yaml(path)) == {name: value for name, value in changes.items() if name != "threads"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "/front has no parameter of this package"),
        ([ParameterValue()] * len(PARAMETERS), "/front has no parameter of this package"),
        ([ParameterValue(type=1)] * 3, "/front answers with 3 values when asked for "),
        ([ParameterValue(type=99)] * len(PARAMETERS), "/front: sensor cannot be saved: 99 is not"),
        ([ParameterValue(type=5, byte_array_value=[b"a"])] * len(PARAMETERS), "sensor cannot be saved: no parameter"),
        ([ParameterValue(type=7)] * len(PARAMETERS), "sensor cannot be saved: no parameter can be ()"),
        (
            [*list(DEFAULTS.values())[:-1], ParameterValue(type=4, string_value="\x1b[2J" * 1_000_000)],
            r"snapshot.quota_mb cannot be saved: no parameter can be '\x1b[2J\x1b",
        ),
        (
            [ParameterValue(type=7, integer_array_value=[1] * 1_000_000), *list(DEFAULTS.values())[1:]],
            "sensor cannot be saved: no parameter can be (1, 1",
        ),
    ],
    ids=["none", "unset", "few", "type", "bytes", "empty", "long text", "long list"],
)
def test_answers_that_no_file_can_hold(forge: Any, values: List[Any], said: str) -> None:
    forge(values)
    with pytest.raises(RuntimeError) as caught:
        read_parameters("front", TIMEOUT)
    shown = str(caught.value)
    assert said in shown
    assert shown.isprintable()
    assert len(shown) < 600


@pytest.mark.parametrize("name", ["bad name", "a-b", "", "a__b", "a\n\x1b[2Jb", "\udcff", "x" * 10_000])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(RuntimeError, match="is no node's name, which needs letters") as caught:
        read_parameters(name, 0.1)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


@pytest.mark.usefixtures("forge")
def test_nobody_answers() -> None:
    command = [sys.executable, "-m", "polar_pipeline", "params", "dump", "--node", "nobody", "--wait", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert "no node /nobody within 0.1 s; running nodes of this package: none" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
