"""Scans and sounds as files, made with the packages that read them."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np


def dicom(path: Path, x: np.ndarray[Any, Any], place: float = 0.0, number: int = 1, **tags: Any) -> None:
    """A slice (h, w) of 12 bits, or (h, w, 3) of 8; other tags on top."""
    import pydicom
    from pydicom.dataset import Dataset, FileMetaDataset

    opened = Dataset()
    opened.file_meta = FileMetaDataset()
    opened.file_meta.TransferSyntaxUID = tags.pop("syntax", pydicom.uid.ExplicitVRLittleEndian)
    opened.file_meta.MediaStorageSOPClassUID = opened.SOPClassUID = pydicom.uid.CTImageStorage
    opened.file_meta.MediaStorageSOPInstanceUID = opened.SOPInstanceUID = pydicom.uid.generate_uid()
    opened.PatientName, opened.PatientID, opened.InstanceNumber = "SECRET^NAME", "SECRET-1", number
    opened.Rows, opened.Columns = x.shape[:2]
    opened.SamplesPerPixel, opened.PhotometricInterpretation = (3, "RGB") if x.ndim == 3 else (1, "MONOCHROME2")
    bits = 8 if x.ndim == 3 else 16
    opened.BitsAllocated, opened.BitsStored, opened.HighBit = bits, min(bits, 12), min(bits, 12) - 1
    opened.PixelRepresentation = 0
    if x.ndim == 3:
        opened.PlanarConfiguration = 0
    opened.ImagePositionPatient, opened.ImageOrientationPatient = [0.0, 0.0, place], [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    opened.PixelData = x.astype("u1" if bits == 8 else "<u2").tobytes()
    for name, value in tags.items():
        setattr(opened, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    opened.save_as(path, enforce_file_format=True)


def nifti(path: Path, x: np.ndarray[Any, Any], axes: tuple[float, float, float] = (1, 1, 1)) -> None:
    """A volume in the order x, y, z; axes: which way each goes, and its voxels' size."""
    import nibabel

    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(x, np.diag([*axes, 1.0])), path)


def sound(path: Path, x: np.ndarray[Any, Any], rate: int = 16000, width: int = 2) -> None:
    """A WAV (n,) or (n, channels) of values in [-1, 1), as whole numbers of so many bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if width == 1:
        raw = (x * 127 + 128).astype("u1").tobytes()
    else:
        wide = np.ascontiguousarray((x * (2**31 - 1)).astype("<i4")).reshape(-1).view("u1").reshape(-1, 4)
        raw = np.ascontiguousarray(wide[:, 4 - width :]).tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 if x.ndim == 1 else x.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(raw)
