"""Record batches: their bytes, codecs, keys, and the checks before they are appended."""
