"""Frames of a camera to a normalised batch that other processes read, without a copy on the way.

A frame is uint8, height × width × colour, of any stride: flipped, cropped, every second pixel. The model
wants float32, colour × height × width, (x / 255 - mean) / std. The usual chain makes four arrays for that.
Here it is computed where it is needed, in shared memory; a consumer process sees it by its handle.
"""

import multiprocessing
import sys

import numpy as np
import overdrive

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)


def usual(frame: np.ndarray) -> np.ndarray:
    """The chain as it is usually written: float, divide, normalise, transpose."""
    x = frame.astype(np.float32) / 255
    x = (x - MEAN) / STD
    return np.ascontiguousarray(x.transpose(2, 0, 1))


def normalise(frame: np.ndarray, out: np.ndarray) -> None:
    """The same operations, each colour in place in its plane of ``out``: float32, (3, height, width)."""
    for colour, plane in enumerate(out):
        np.divide(frame[:, :, colour], np.float32(255), out=plane)
        np.subtract(plane, MEAN[colour], out=plane)
        np.divide(plane, STD[colour], out=plane)


class Batches:
    """Batches of frames in a pool; each is made in place and goes to others by its handle."""

    def __init__(self, n_frames: int, height: int, width: int, n_batches: int = 4) -> None:
        self.shape = (n_frames, 3, height, width)
        self.pool = overdrive.shm.Pool(n_batches * (4 * n_frames * 3 * height * width + 4096))

    def make(self, frames: list) -> overdrive.Tensor:
        """``frames``: anything with memory (arrays, Arrow, PyTorch, buffers), uint8, (height, width, 3)."""
        batch = self.pool.empty(self.shape, "float32")
        planes = batch.numpy()
        for frame, out in zip(frames, planes, strict=True):
            normalise(overdrive.tensor(frame).numpy(), out)
        return batch


def consume(handles: "multiprocessing.SimpleQueue", answers: "multiprocessing.SimpleQueue") -> None:
    while (handle := handles.get()) is not None:
        batch = overdrive.attach(handle, readonly=True)
        answers.put([float(plane.mean()) for plane in batch.numpy().mean(axis=0)])


def main() -> None:
    rng = np.random.default_rng(0)
    camera = rng.integers(0, 256, (8, 240, 320, 3), dtype=np.uint8)
    frames = [frame[::-1, 48:272][:224] for frame in camera]  # upside down, cropped: strides, no copy
    handles, answers = multiprocessing.SimpleQueue(), multiprocessing.SimpleQueue()
    consumer = multiprocessing.Process(target=consume, args=(handles, answers))
    consumer.start()
    batch = Batches(8, 224, 224).make(frames)
    handles.put(str(batch.handle))
    print("mean of each colour, as the other process sees it:", [round(mean, 3) for mean in answers.get()])
    handles.put(None)
    consumer.join()
    same = np.array_equal(batch.numpy(), np.stack([usual(frame) for frame in frames]))
    print("equal to the usual chain, bit for bit:", same)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
