import numpy as np

from fieldwise.train.memory import forget_peak, peak_memory


def test_the_peak_is_of_what_came_since_it_was_forgotten() -> None:
    forget_peak()
    before = peak_memory()
    big = np.ones(12_000_000)  # 96 MB
    high = peak_memory()
    assert high > before + 80_000_000
    del big
    assert peak_memory() > high - 2_000_000, "a peak stays until it is forgotten; the system counts in steps"
    forget_peak()
    assert peak_memory() < high - 50_000_000 or peak_memory() >= high, "where the system cannot forget, it stays"
