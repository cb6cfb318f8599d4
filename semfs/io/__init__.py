"""File formats, one file each: opened without trust, read in blocks, written whole."""
