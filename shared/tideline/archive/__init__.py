"""Records to bytes and back: the only code that knows bytes.

layout   one file: header, entries, buffers (the safetensors layout). Standard library only
parts    where files lie, by digest: a folder, or a dictionary
codec    records to files and back; checks every declaration on the way out and on the way in (needs torch)
"""
