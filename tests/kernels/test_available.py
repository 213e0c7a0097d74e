"""Where kernels are used."""

import pytest
import torch

from fieldwise.core.errors import SettingsError
from fieldwise.kernels import available
from fieldwise.kernels.available import VARIABLE, has_all_kernels, has_kernels

GPU = torch.device("cuda", 0)


@pytest.mark.parametrize("choice", ["tables", "all", "none", "other"])
def test_no_kernel_runs_on_a_cpu(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, choice)
    assert not has_kernels(torch.device("cpu"))
    assert not has_all_kernels(torch.device("cpu"))


@pytest.mark.parametrize("able", [False, True])
def test_a_gpu_uses_what_is_chosen_and_can_run(able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available, "can_run", lambda _: able)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert (has_kernels(GPU), has_all_kernels(GPU)) == (able, able), "all by default"
    for choice, expected in {"tables": (able, False), "all": (able, able), "none": (False, False)}.items():
        monkeypatch.setenv(VARIABLE, choice)
        assert (has_kernels(GPU), has_all_kernels(GPU)) == expected


def test_another_choice_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "ALL")
    with pytest.raises(SettingsError, match=r"FIELDWISE_KERNELS = 'ALL'. Choose from: all, tables, none\."):
        has_kernels(GPU)
