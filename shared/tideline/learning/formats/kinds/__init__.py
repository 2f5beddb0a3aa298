"""Kinds of data beside tables and images: samples of any shape, `.npy` files, and folders of DICOM, NIfTI and audio files."""
