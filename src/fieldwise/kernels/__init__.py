"""Triton kernels for CUDA; the package is imported only where both are there, and has a plain twin for every kernel."""
