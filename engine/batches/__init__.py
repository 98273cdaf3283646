"""Record batches: their bytes, codecs, keys, and what one has to stand before it is appended."""
