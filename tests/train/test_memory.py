import mmap
import os
import platform
import subprocess
import sys

import pytest

from fieldwise.train.memory import forget_peak, peak_memory


def test_the_peak_is_of_what_came_since_it_was_forgotten() -> None:
    forget_peak()
    before = peak_memory()
    big = mmap.mmap(-1, 96_000_000)  # of its own: an array could fill what earlier tests have freed
    big[::4096] = bytes(len(range(0, 96_000_000, 4096)))
    high = peak_memory()
    assert high > before + 80_000_000
    big.close()
    assert peak_memory() > high - 2_000_000, "a peak stays until it is forgotten; the system counts in steps"
    forget_peak()
    assert peak_memory() < high - 50_000_000 or peak_memory() >= high, "where the system cannot forget, it stays"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_what_a_step_frees_is_not_fetched_from_the_system_again() -> None:
    code = (
        "import resource, sys, torch\n"
        "from fieldwise.core.resident import keep_freed\n"
        "torch.set_num_threads(1)\n"
        "keep_freed() if sys.argv[1] == 'keep' else None\n"
        "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "def step(): parts = [torch.ones(2_000_000) for _ in range(8)]\n"  # 64 MB
        "for _ in range(3): step()\n"  # until the heap is stable
        "before = faults()\n"
        "for _ in range(5): step()\n"
        "print(faults() - before)\n"
    )
    found = []
    for how in ("keep", "leave"):
        command = [sys.executable, "-c", code, how]
        fixed = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}  # glibc's dynamic threshold may or may not keep it
        found.append(int(subprocess.run(command, capture_output=True, text=True, check=True, env=fixed).stdout))
    kept, left = found
    assert kept < 100 < left  # 5 steps of 64 MB are 78,125 pages of 4 KiB, or 160 huge pages
