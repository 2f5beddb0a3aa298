"""Audio: a file's first seconds as a spectrogram, an image of one channel: mel bands by frames, loudness from 0 to 1.

Power in mel bands (O'Shaughnessy, "Speech Communication", 1987: 2595 log10(1 + f / 700)), in decibels below a sine as loud as
the file can hold: -80 dB and less is 0. Channels are averaged, other rates are resampled, shorter files filled up with silence.
"""

from __future__ import annotations

import math
import stat
import wave
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.learning.formats.images import Listing
from tideline.learning.formats.kinds.listing import FileKind, Undecodable, refuse_world
from tideline.learning.formats.transforms import Transform

INSTALL = "Install the extra at the agent: pip install 'tideline[audio]'; or save the files as WAV of 16 bits"
QUIET = 80.0  # decibels below the loudest that are still heard
LEAST = 1e-12
FASTEST = 1_000_000  # of a file's own rate: a header can promise any
PLAIN = {1: (np.uint8, 128.0, 128.0), 2: (np.int16, 0.0, 32768.0), 4: (np.int32, 0.0, 2147483648.0)}


def inputs_of(transform: Transform) -> tuple[int, int, int]:
    """Channels, mel bands and frames, as the settings have them."""
    window, hop = sizes(transform)
    return 1, transform.mel, 1 + max(round(transform.seconds * transform.rate) - window, 0) // hop


def sizes(transform: Transform) -> tuple[int, int]:
    """Window and hop in values."""
    return (max(round(each * transform.rate / 1000), 1) for each in (transform.window_ms, transform.hop_ms))  # type: ignore[return-value]


def check(world: World, transform: Transform, listing: Listing) -> None:
    """Raises DataRefused for another world than the settings give, and for files that need the extra."""
    inputs = inputs_of(transform)
    if world.tokens or world.inputs != inputs:
        by = "mel, rate, window_ms, hop_ms and seconds in transforms.toml"
        raise refuse_world(world, "audio files", f"{list(inputs)}, as they are read; or set {by}")
    if any(name.lower().endswith(".flac") for name in listing.files):
        soundfile()


def soundfile() -> Any:
    """The package. Raises DataRefused without it."""
    try:
        import soundfile as package
    except (ImportError, OSError):  # OSError: without the library that it wraps
        raise DataRefused("there are audio files that need soundfile, which is not installed here", INSTALL) from None
    return package


def read(path: Path, world: World, transform: Transform) -> NDArray[np.generic]:
    """A spectrogram (mel, frames), float32. Raises ValueError and what the readers raise."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a file")
    sound, rate = heard(path, transform.seconds)
    if rate != transform.rate:
        from scipy.signal import resample_poly  # type: ignore[import-untyped,unused-ignore]  # here: it loads slowly

        by = math.gcd(rate, transform.rate)
        sound = resample_poly(sound, transform.rate // by, rate // by)
    n = round(transform.seconds * transform.rate)
    return spectrogram(np.pad(sound[:n], (0, max(n - len(sound), 0))), transform)


def heard(path: Path, seconds: float) -> tuple[NDArray[np.float64], int]:
    """The first seconds (n,) in [-1, 1], and their rate."""
    if path.suffix.lower() == ".wav":
        try:
            return of_wave(path, seconds)
        except wave.Error as error:
            if "unknown format" not in str(error):
                raise
    try:
        package = soundfile()
    except DataRefused as error:
        raise Undecodable(
            "it is a WAV of another kind than whole numbers, and soundfile is not installed here", error.todo
        ) from None
    with package.SoundFile(path) as file:
        check_rate(file.samplerate)
        values = file.read(wanted(seconds, file.samplerate), dtype="float64", always_2d=True)
        return values.mean(1), int(file.samplerate)


def of_wave(path: Path, seconds: float) -> tuple[NDArray[np.float64], int]:
    """Of a WAV of whole numbers. Raises wave.Error, EOFError, ValueError for one that is cut off."""
    with wave.open(str(path), "rb") as file:
        width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
        check_rate(rate)
        n = min(file.getnframes(), wanted(seconds, rate))
        raw = file.readframes(n)
    if len(raw) != n * width * channels:
        raise ValueError("the file is cut off")
    return as_values(raw, width).reshape(n, channels).mean(1), rate


def as_values(raw: bytes, width: int) -> NDArray[np.float64]:
    """Bytes of so many each as values in [-1, 1]."""
    if width == 3:  # the upper three of four
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        raw, width = wide.tobytes(), 4
    kind, middle, full = PLAIN[width]
    return (np.frombuffer(raw, np.dtype(kind).newbyteorder("<")).astype(np.float64) - middle) / full


def check_rate(rate: int) -> None:
    if not 0 < rate <= FASTEST:
        raise ValueError(f"{rate} values a second; up to {FASTEST} are read")


def wanted(seconds: float, rate: int) -> int:
    """Values of so many seconds, and some for resampling at the end."""
    return math.ceil(seconds * rate) + 64


def spectrogram(sound: NDArray[np.float64], transform: Transform) -> NDArray[np.float32]:
    """(mel, frames) in [0, 1]."""
    window, hop = sizes(transform)
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(sound, (0, max(window - len(sound), 0))), window)[::hop]
    shape = np.hanning(window + 1)[:-1] if window > 1 else np.ones(1)
    power = np.abs(np.fft.rfft(frames * shape, axis=1) / (shape.sum() / 2)) ** 2
    bands = filters(transform.mel, window, transform.rate) @ power.T
    loud = 10 * np.log10(np.maximum(bands, LEAST))
    made: NDArray[np.float32] = np.clip(1 + loud / QUIET, 0.0, 1.0).astype(np.float32)
    return made


@lru_cache(maxsize=4)
def filters(mel: int, window: int, rate: int) -> NDArray[np.float64]:
    """Triangles (mel, window // 2 + 1), evenly spread over the mel scale from 0 to half the rate; each reaches 1."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, mel + 2) / 2595) - 1)
    f = np.fft.rfftfreq(window, 1 / rate)
    low, middle, high = (edges[i : i + mel, None] for i in range(3))
    made: NDArray[np.float64] = np.maximum(0, np.minimum((f - low) / (middle - low), (high - f) / (high - middle)))
    # A band narrower than two frequencies may have none inside: it then has the nearest.
    for band in np.flatnonzero(made.sum(1) == 0):
        made[band, int(np.abs(f - middle[band]).argmin())] = 1.0
    return made


AUDIO = FileKind(
    what="audio files",
    suffixes=(".wav", ".flac"),
    own=("mel", "rate", "window_ms", "hop_ms", "seconds", "unreadable"),
    check=check,
    read=read,
    packages=("soundfile", "scipy", "numpy"),
)
