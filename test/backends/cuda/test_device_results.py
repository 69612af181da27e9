"""Results and frames in device memory. Without a GPU, the stand-in of `test_backend.py` shows order and lifetimes."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Dict, List

import numpy as np
import pytest
from calibrations import defective_calibration
from test_backend import COPIED, SHAPE, STAND_INS, HostDriver, make_driver, mosaic, on_gpus

from polar_pipeline import DeviceResult, FrameError, Pipeline, RawFrame
from polar_pipeline import pipeline as pipeline_module
from polar_pipeline.backends.cuda.backend import CudaBackend
from polar_pipeline.backends.cuda.device_arrays import DeviceFrame
from polar_pipeline.backends.cuda.driver import Driver
from polar_pipeline.options import make_options

PRODUCTS = ("intensity", "dolp", "aolp", "ssim")


class DeviceDriver(HostDriver):
    """The stand-in, whose "device" arrays are of NumPy.

    Attributes:
        current: The stream that gets the caller's work.
    """

    current = 0

    def memory_at(self, pointer: int, size: int, _: object) -> np.ndarray:
        return self.held[pointer][:size]

    def array_in(self, memory: np.ndarray, shape: Any, dtype: str) -> np.ndarray:
        return memory.view(dtype).reshape(shape)

    def in_stream(self, _: int) -> Any:
        return nullcontext()

    def current_stream(self) -> Any:
        return SimpleNamespace(ptr=self.current)


@pytest.fixture(params=[STAND_INS[1], *on_gpus])
def driver(request: pytest.FixtureRequest) -> Any:
    """A stand-in for a GPU that copies host memory; a real GPU as itself and as Jetsons."""
    made = make_driver(request.param)
    return DeviceDriver(COPIED) if isinstance(made, HostDriver) else made


def make(driver: Any, products: Any = PRODUCTS, **options: Any) -> CudaBackend:
    return CudaBackend(make_options(products=products, output="device", **options), driver)


def on_host(result: DeviceResult) -> Dict[str, np.ndarray]:
    """Copies of the arrays, once they are complete."""
    result.synchronize()
    return {name: array.copy() if isinstance(array, np.ndarray) else array.get() for name, array in result.items()}


def same(got: Dict[str, np.ndarray], wanted: Any) -> None:
    assert set(got) == set(wanted)
    for name, array in got.items():
        np.testing.assert_array_equal(array, wanted[name], name)


def test_arrays_are_those_of_host_results(driver: Any) -> None:
    options = {"dtype": {"intensity": "uint8"}}
    host, device = CudaBackend(make_options(products=PRODUCTS, **options), driver), make(driver, **options)
    for seed in range(4):
        frame = RawFrame(mosaic(seed), 199)
        wanted, got = host.submit(frame)(), device.submit(frame)()
        assert isinstance(got, DeviceResult)
        same(on_host(got), wanted)
        same(got.host_arrays(), wanted)
        assert got.invalid == wanted.invalid
        assert (got.timings, got.frames) == ({}, 0)
        blocks = got.blocks if isinstance(got.blocks, np.ndarray) else got.blocks.get()
        np.testing.assert_array_equal(blocks, wanted.blocks)


def test_results_are_valid_until_the_ring_comes_round(driver: Any) -> None:
    made = make(driver, ("dolp",))
    results: List[Any] = [made.submit(RawFrame(mosaic(seed), 255))() for seed in range(made.depth)]
    kept = [on_host(result) for result in results]
    again = made.submit(RawFrame(mosaic(9), 255))()
    for use in (results[0].wait, results[0].synchronize, lambda: results[0].invalid):
        with pytest.raises(RuntimeError, match="was reused"):
            use()
    for result, wanted in zip(results[1:], kept[1:]):
        same(on_host(result), wanted)
    again.synchronize()  # type: ignore[attr-defined]
    taken = made.submit(RawFrame(mosaic(1), 255))
    taken()
    with pytest.raises(RuntimeError, match="its result was taken"):
        taken()


class StandInArray:
    """A frame in the "device" memory of the stand-in."""

    dtype, itemsize, ndim = np.dtype(np.uint8), 1, 2

    def __init__(self, driver: DeviceDriver) -> None:
        self.shape, self.nbytes = SHAPE, int(np.prod(SHAPE))
        self.data = SimpleNamespace(ptr=driver.malloc(self.nbytes))
        self.flags = SimpleNamespace(c_contiguous=True)
        self.pixels = driver.held[self.data.ptr]


@pytest.mark.parametrize("mode", ["consistency", "temporal"])
@pytest.mark.parametrize("others_first", [False, True])
def test_frames_on_the_device_follow_the_stream_of_the_caller(mode: str, others_first: bool) -> None:
    """Streams that write a frame, submit it, and read its results without waiting; frames of the host in between."""
    device = DeviceDriver(COPIED)
    device.others_first = others_first
    made, streams = make(device, ssim_mode=mode), [device.make_stream() for _ in range(2)]
    alone = CudaBackend(make_options(products=PRODUCTS, ssim_mode=mode), HostDriver(COPIED))
    inputs = [StandInArray(device) for _ in streams]
    # the last frame, in the second stream, is compared with one in the first, which it follows for no other reason
    places = [*np.random.default_rng(0).integers(0, 3, 20), 1, 0, 0, 1]
    copies, wanted = [], []
    for seed, place in enumerate(places):
        raw = mosaic(seed)
        wanted.append(alone.submit(RawFrame(raw, 255))())
        stream = streams[place % 2]
        device.current = stream
        if place == 2:
            result: Any = made.submit(RawFrame(raw, 255))()
            result.wait(stream)
        else:
            array = inputs[place]
            device._enqueue(stream, lambda a=array, raw=raw: np.copyto(a.pixels, raw.reshape(-1)))
            result = made.submit(DeviceFrame(array, 255))()
            assert result.stream == stream
        copied = {name: np.full_like(source, -1) for name, source in result.items()}
        for name, source in result.items():
            device._enqueue(stream, lambda s=source, c=copied[name]: np.copyto(c, s))
        copies.append(copied)
    device.others_first = True
    for stream in streams:
        event = device.make_event()
        device.record(event, stream)
        device.wait(event)
    for got, one in zip(copies, wanted):
        same(got, one)


def test_ssim_has_nothing_to_compare_the_first_frame_with(driver: Any) -> None:
    made = make(driver, ("ssim_map", "ssim"), ssim_mode="temporal")
    assert all(np.isnan(array).all() for array in on_host(made.submit(RawFrame(mosaic(1), 255))()).values())  # type: ignore[arg-type]
    assert not np.isnan(on_host(made.submit(RawFrame(mosaic(2), 255))())["ssim"])  # type: ignore[arg-type]


def test_the_cpu_has_no_device_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^output 'device' needs backend 'cuda'$"):
        Pipeline(backend="cpu", output="device")
    monkeypatch.setattr(pipeline_module, "backend_problem", lambda _: "no driver")
    for option, text in (({"output": "device"}, "output 'device'"), ({"precision": "fp16"}, "precision 'fp16'")):
        with pytest.raises(ValueError, match=rf"^{text} needs backend 'cuda'.*; no CUDA here: no driver$"):
            Pipeline(**option)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"^backend 'cuda' cannot work here: no driver$"):
        Pipeline(backend="cuda", output="device")

    class Elsewhere:
        __cuda_array_interface__: Dict[str, Any] = {}  # noqa: RUF012

    with pytest.raises(FrameError, match="needs backend 'cuda'"):
        Pipeline(backend="cpu")(Elsewhere())  # type: ignore[arg-type]


class Tensor:
    """A float tensor on a GPU that requires gradients, as PyTorch's, which fails where an attribute is read."""

    error: type = BufferError  # RuntimeError in older versions
    advice = "Can't export tensors that require gradient, use tensor.detach()"

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad. ...")

    def __dlpack_device__(self) -> Any:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise self.error(self.advice)


@pytest.mark.parametrize("error", [BufferError, RuntimeError])
def test_tensors_that_require_gradients_are_refused(monkeypatch: pytest.MonkeyPatch, error: type) -> None:
    monkeypatch.setattr(Tensor, "error", error)
    with pytest.raises(FrameError, match="needs backend 'cuda'"):
        Pipeline(backend="cpu")(Tensor())  # type: ignore[arg-type]

    class DeviceError(RuntimeError):
        pass

    class Array:
        device = SimpleNamespace(id=0)

    cupy = SimpleNamespace(ndarray=Array, from_dlpack=lambda array: array.__dlpack__())
    driver: Any = SimpleNamespace(_cupy=cupy, _errors=(DeviceError,))
    with pytest.raises(FrameError, match=r"uint8 or uint16 array .* got a Tensor: .*tensor\.detach\(\)") as caught:
        Driver._as_array(driver, Tensor())
    assert caught.value.cause == "type"
    monkeypatch.setattr(Tensor, "error", DeviceError)
    with pytest.raises(DeviceError):  # an error of the device is not one of the frame
        Driver._as_array(driver, Tensor())
    own = Array()
    assert Driver._as_array(driver, own) is own


# ---------------------------------------------------------------------------------------------------------- on a GPU

cupy_only = pytest.mark.gpu


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


def pipelines(**options: Any) -> Any:
    return (Pipeline(backend="cuda", output=output, **options) for output in ("host", "device"))


@cupy_only
@pytest.mark.parametrize("top", [200, 4000])
def test_frames_on_the_device(cupy: Any, top: int) -> None:
    host, device = pipelines(products=PRODUCTS, bit_depth=12 if top > 255 else 0)
    raw = mosaic(3, top)
    wanted = host(raw)
    wide = cupy.asarray(np.pad(raw, ((0, 0), (0, 7))))
    for frame in (cupy.asarray(raw), wide[:, :-7], RawFrame(cupy.asarray(raw), 4095 if top > 255 else 255)):
        same(on_host(device(frame)), wanted)
        same(dict(host(frame)), wanted)
    for wrong, text in (
        (cupy.zeros((32, 48), np.float32), "uint8 or uint16"),
        (cupy.zeros(48, np.uint8), r"\(H, W\)"),
        (cupy.zeros((8, 8), np.uint8), "at least"),
        (cupy.zeros((0, 32, 48), np.uint8), r"\(N, H, W\)"),
    ):
        with pytest.raises(FrameError, match=text):
            device(wrong)
    with pytest.raises(FrameError, match="batch needs output='device'"):
        host(cupy.zeros((2, 32, 48), np.uint8))


@cupy_only
@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
def test_batches_are_as_single_frames(cupy: Any, sensor: str) -> None:
    host, device = pipelines(products=(*PRODUCTS, "ssim_map", "preview"), sensor=sensor)
    frames = np.stack([mosaic(seed) for seed in range(5)])
    result = device(cupy.asarray(frames))
    got, wanted = on_host(result), [host(frame) for frame in frames]
    assert result.frames == len(frames)
    for name, array in got.items():
        np.testing.assert_array_equal(array, np.stack([one[name] for one in wanted]), name)
    assert result.invalid == tuple(np.sum([one.invalid for one in wanted], 0))


@cupy_only
def test_batches_with_a_geometry(cupy: Any) -> None:
    host, device = pipelines(products=("dolp", "ssim"), rotate=90, scale=2)
    frames = np.stack([mosaic(seed) for seed in range(3)])
    got = on_host(device(cupy.asarray(frames)))
    for name in got:
        np.testing.assert_array_equal(got[name], np.stack([host(frame)[name] for frame in frames]), name)
    with pytest.raises(FrameError, match="consistency"):
        Pipeline(backend="cuda", output="device", products=("ssim",), ssim_mode="temporal")(cupy.asarray(frames))


@cupy_only
@pytest.mark.parametrize("count", [0, 3])
def test_defects_are_replaced_on_the_device(cupy: Any, count: int) -> None:
    calibration = defective_calibration("IMX250MZR", SHAPE)
    host, device = pipelines(products=("intensity", "dolp"), calibration=calibration)
    frames = np.stack([mosaic(seed) for seed in range(max(1, count))])
    given = cupy.asarray(frames if count else frames[0])
    before = given.get()
    got = on_host(device(given))
    for name in got:
        wanted = np.stack([host(frame)[name] for frame in frames])
        np.testing.assert_array_equal(got[name], wanted if count else wanted[0], name)
    np.testing.assert_array_equal(given.get(), before)  # the caller's frame is left alone


@cupy_only
def test_another_library_shares_memory(cupy: Any) -> None:
    """By DLPack, as PyTorch does, here without it."""
    host, device = pipelines(products=("dolp",))
    raw = mosaic(4)
    result = device(cupy.asarray(raw))
    shared = cupy.from_dlpack(result["dolp"])
    assert shared.data.ptr == result["dolp"].data.ptr
    result.synchronize()
    np.testing.assert_array_equal((2 * shared).get(), 2 * host(raw)["dolp"])


@cupy_only
def test_torch_shares_memory_in_both_directions() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed, which no extra requires")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch computes on the CPU only")
    host, device = pipelines(products=("dolp",))
    raw = mosaic(4)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        result = device(torch.from_numpy(raw).cuda())
        result.wait(stream)
        tensor = torch.from_dlpack(result["dolp"])
        assert tensor.data_ptr() == result["dolp"].data.ptr
        doubled = (2 * tensor).cpu().numpy()
    np.testing.assert_array_equal(doubled, 2 * host(raw)["dolp"])
    for made in (host, device):
        with pytest.raises(FrameError, match=r"uint8 or uint16 array .*detach"):
            made(torch.zeros(raw.shape, device="cuda", requires_grad=True))


@cupy_only
def test_streams_of_readers_and_writers_in_any_order(cupy: Any) -> None:
    """Two pipelines in two streams in turns, with slow readers, 1,000 frames: as one after the other.

    Readers poison each result when they have read it, and writers each frame when it is read.
    """
    host = Pipeline(backend="cuda", products=("dolp",))
    frames = [np.random.default_rng(seed).integers(0, 256, (256, 256)).astype(np.uint8) for seed in range(8)]
    wanted = [cupy.asarray(host(frame)["dolp"]) for frame in frames]
    made = [Pipeline(backend="cuda", products=("dolp",), output="device") for _ in range(2)]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    inputs = [[cupy.empty((256, 256), np.uint8) for _ in streams] for _ in made]
    on_device = [cupy.asarray(frame) for frame in frames]
    wrong = cupy.zeros((2, 2), np.int64)
    busy = cupy.ones((512, 512), np.float32)
    for k in range(500):
        for which, pipeline in enumerate(made):
            turn = (k // 5 + which) % 2
            with streams[turn]:
                raw = inputs[which][turn]
                raw[...] = on_device[(k + which) % 8]
                result = pipeline(raw)
                raw.fill(0xEE)  # the frame was read before, in this stream
                if k % 7 == 0:
                    busy @ busy  # a reader that is late
                same = cupy.array_equal(result["dolp"], wanted[(k + which) % 8], equal_nan=True)
                wrong[which, turn] += ~same
                result["dolp"].fill(np.nan)
    cupy.cuda.Device().synchronize()
    assert not wrong.any()


@cupy_only
def test_streams_that_the_caller_gave_up(cupy: Any) -> None:
    """A stream that reads results is kept until their memory is used again."""
    host, device = pipelines(products=("dolp",))
    raw = mosaic(5)
    for frame in (raw, cupy.asarray(raw)):
        for _ in range(device.depth):
            with cupy.cuda.Stream(non_blocking=True):
                device(frame).wait()
        gc.collect()
        for _ in range(device.depth):
            same(on_host(device(raw)), host(raw))
