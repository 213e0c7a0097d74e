"""One file per library that against.py measures: `prepare(job)` returns a Contender.

A file is imported by the Python of its library's environment (worker.py), so it may import that library, numpy and
torch, and nothing of fieldwise. PACKAGES names the versions to report, NOTES the differences from fieldwise.
"""
