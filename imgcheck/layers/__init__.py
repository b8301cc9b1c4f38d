"""Layers: digests, decompression, tar streams, whiteouts and the merged tree."""
