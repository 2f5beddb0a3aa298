"""Records to bytes and back: the only code that knows bytes.

layout   one file: header, entries, buffers (the safetensors layout). Standard library only
parts    stores of files by digest, and several of them in one stream; folder: as files on disk
writer   records to files; reader: files to records; checks: what both hold values to (these three need torch)
sealing  files that only chosen sites can open
"""
