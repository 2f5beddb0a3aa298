"""Files of a disk: spare ones that are written over, and bytes that memory has no room for."""
