"""Benchmarks serving: the compact model against the full one."""
