"""Weights in fewer bytes, beside the archive: what is written is packed, and what is read is float32."""
