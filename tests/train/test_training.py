import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fieldwise.core.errors import RunError, SettingsError, TrainingError
from fieldwise.core.records import Epoch
from fieldwise.core.schema import Layout, Schema
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset, Split
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.fm import FM
from fieldwise.tables.embedding import FieldEmbedding
from fieldwise.train import checkpoint
from fieldwise.train.evaluate import evaluate
from fieldwise.train.plan import early_stop
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.randomness import randomness
from fieldwise.train.regularity import SoftOrthogonality
from fieldwise.train.retraining import Retrain, retrain
from fieldwise.train.task import Task, choose_device
from tests.trainings import Stop, numbers, same

FAST = Pretrain(batch=512, epochs=4, patience=4, learning_rate=0.02)


def test_the_same_seed_gives_the_same_bits_and_leaves_randomness_alone(task: Task) -> None:
    before = torch.get_rng_state()
    first, second = pretrain(task, FAST), pretrain(task, FAST)
    assert torch.equal(torch.get_rng_state(), before)
    assert numbers(first) == numbers(second)
    assert same(first.model.state_dict(), second.model.state_dict())
    other = pretrain(Task(task.schema, task.train_rows, task.valid_rows, task.model, 4, "cpu"), FAST)
    assert numbers(other) != numbers(first)


def test_the_best_state_is_returned(task: Task) -> None:
    trained = pretrain(task, Pretrain(batch=256, epochs=30, learning_rate=0.05, patience=2))
    aucs = [epoch.auc for epoch in trained.history]
    assert evaluate(trained.model, task.valid).auc == max(aucs)
    assert aucs.index(max(aucs)) == len(aucs) - 3, "stopped two epochs after the best"
    assert trained.history[0].epoch == 0
    assert trained.history[0].loss is None


def test_early_stop_counts_from_the_first_best() -> None:
    def history(*aucs: float) -> list[Epoch]:
        return [Epoch(epoch=i, loss=1.0, auc=a, log_loss=1.0, seconds=0.1) for i, a in enumerate(aucs)]

    stop = early_stop(2)
    assert not stop([])
    assert not stop(history(0.5, 0.6, 0.6))
    assert stop(history(0.5, 0.6, 0.6, 0.6))
    assert not stop(history(0.5, 0.6, 0.5, 0.7))


@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupted_training_ends_with_the_same_bits(task: Task, tmp_path: Path, after: int) -> None:
    whole = pretrain(task, FAST)
    with pytest.raises(KeyboardInterrupt):
        pretrain(task, FAST, tmp_path / "c", Stop(after))
    resumed = pretrain(task, FAST, tmp_path / "c")
    assert numbers(resumed) == numbers(whole)
    assert same(resumed.model.state_dict(), whole.model.state_dict())
    assert len(list((tmp_path / "c").glob("*.safetensors"))) <= 2, "the last and the best"


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(task: Task, tmp_path: Path) -> None:
    class Poison(Watcher):
        def epoch(self, stage: str, epoch: Epoch) -> None:
            if epoch.epoch == 1:
                with torch.no_grad():
                    next(model.embedding.parameters()).fill_(float("nan"))

    model = task.new_model()
    poisoned = task.starting_from(model)
    object.__setattr__(poisoned, "starting_model", lambda: model)
    with pytest.raises(TrainingError, match=r"pretrain became nan at step \d+ \(epoch 2\).*checkpoint is kept"):
        pretrain(poisoned, FAST, tmp_path / "c", Poison())
    tensors, info = checkpoint.load(tmp_path / "c", torch.device("cpu")) or ({}, {})
    assert len(info["history"]) == 2
    assert all(torch.isfinite(t).all() for t in tensors.values())


def test_an_absurd_learning_rate_is_reported_as_such(task: Task) -> None:
    with pytest.raises(TrainingError, match="lower the learning rate"):
        pretrain(task, Pretrain(batch=512, epochs=3, learning_rate=1e30))


def test_a_damaged_checkpoint_is_refused(task: Task, tmp_path: Path) -> None:
    pretrain(task, Pretrain(batch=512, epochs=1), tmp_path)
    next(tmp_path.glob("*.safetensors")).write_bytes(b"x")
    with pytest.raises(RunError, match="is damaged"):
        pretrain(task, Pretrain(batch=512, epochs=1), tmp_path)


def test_a_checkpoint_that_lost_an_epoch_or_a_moment_is_refused(task: Task, tmp_path: Path) -> None:
    settings = Pretrain(batch=512, epochs=2, patience=2)
    pretrain(task, settings, tmp_path / "a")
    for name in ("history", "moments"):
        folder = Path(shutil.copytree(tmp_path / "a", tmp_path / name))
        if name == "history":
            found = json.loads((folder / "checkpoint.json").read_text())
            found["info"]["history"].pop()
            (folder / "checkpoint.json").write_text(json.dumps(found))
        else:
            (path,) = folder.glob("3.safetensors")
            tensors = load_file(path)
            del tensors[next(key for key in tensors if key.endswith("exp_avg_sq"))]
            save_file(tensors, path)
        with pytest.raises(RunError, match="is damaged"):
            pretrain(task, settings, folder)


def test_retraining_leaves_the_given_model_alone_and_can_drop_first_order_weights(task: Task) -> None:
    layout = Layout(task.schema, (3, 2, 0, 1, 0, 0))
    model = FM().build(layout)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    kept = retrain(task, model, Retrain(batch=512, epochs=1, distil=0)).model
    gone = retrain(task, model, Retrain(batch=512, epochs=1, distil=0, drop_first_order=True)).model
    assert same(model.state_dict(), before)
    assert kept.needs == task.schema.names
    assert gone.needs == ("user", "item", "noise_a")


def test_raw_orthogonality_is_the_paper_s_sum() -> None:
    schema = Schema.of(user=9, gender=2)
    embedding = FieldEmbedding(Layout(schema, (4, 2)), 1.0)
    expected = 0.0
    for j, width in ((0, 4), (1, 2)):
        table = embedding.table(j).detach().numpy()
        expected += ((table.T @ table - np.eye(width)) ** 2).sum() / width**2
    penalty = SoftOrthogonality(strength=0.5, form="raw").penalty(embedding)
    assert float(penalty.detach()) == pytest.approx(0.5 * expected, rel=1e-5)
    penalty.backward()
    user, grad = embedding.table(0), embedding.tables["4"].grad
    assert torch.allclose(grad, 0.5 * 4 * user @ (user.T @ user - torch.eye(4)) / 16, atol=1e-4)


def test_cosine_orthogonality_sees_angles_alone() -> None:
    embedding = FieldEmbedding(Layout(Schema.of(user=9), (3,)), 1.0)
    penalty = SoftOrthogonality(strength=1, form="cosine").penalty
    before = float(penalty(embedding).detach())
    with torch.no_grad():
        embedding.tables["3"].mul_(torch.tensor([2.0, 0.1, 5.0]))
    assert float(penalty(embedding).detach()) == pytest.approx(before, rel=1e-5)
    columns = torch.nn.functional.normalize(embedding.tables["3"].detach(), dim=0)
    off = (columns.T @ columns - torch.eye(3)).square().sum() / 9
    assert before == pytest.approx(float(off), rel=1e-4)


def test_orthogonality_lowers_the_correlation_of_columns(task: Task) -> None:
    def correlation(strength: float) -> float:
        settings = Pretrain(
            batch=512, epochs=8, patience=8, regularity=SoftOrthogonality(strength=strength, form="raw", place="loss")
        )
        table = pretrain(task, settings).model.embedding.table(0).detach()
        cosines = torch.nn.functional.normalize(table, dim=0)
        return float((cosines.T @ cosines - torch.eye(4)).abs().sum() / 12)

    assert correlation(1.0) < 0.5 * correlation(0.0)


def test_borrowed_randomness_depends_on_its_arguments_alone() -> None:
    def draw(seed: int, what: str, epoch: int) -> float:
        with randomness(seed, what, epoch):
            return float(torch.rand(()))

    assert draw(1, "a", 2) == draw(1, "a", 2)
    assert len({draw(1, "a", 2), draw(2, "a", 2), draw(1, "b", 2), draw(1, "a", 3)}) == 4


def test_mixed_precision_is_other_arithmetic_for_the_same_training(planted: Dataset) -> None:
    task = Task.of(planted, DCNv2(width=4, output_bias="drawn"), seed=3, device="cpu")
    full, mixed = (pretrain(task, FAST.model_copy(update={"precision": name})) for name in ("float32", "bfloat16"))
    assert numbers(full) != numbers(mixed)
    assert all(weight.dtype == torch.float32 for weight in mixed.model.parameters())
    for one, other in zip(full.history[1:], mixed.history[1:], strict=True):
        assert one.loss == pytest.approx(other.loss, rel=0.02)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_missing_gpu_is_said() -> None:
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(SettingsError, match="no CUDA device"):
        choose_device("cuda")


def test_a_last_batch_of_one_row_is_left_out_of_the_mean_loss(task: Task) -> None:
    rows = Split(task.train_rows.ids[:65], task.train_rows.labels[:65])
    few = replace(task, train_rows=rows, valid_rows=rows)
    _, first = pretrain(few, Pretrain(batch=32, epochs=1, learning_rate=1e-9)).history
    assert first.loss == pytest.approx(math.log(2), abs=0.05), "two batches of three; the third as 0 would give 0.46"


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"number": 1}', '{"number": "x", "info": {}}', '{"number": 1, "best": 1, "info": {}}', "[" * 200_000,
     '{"number": 1, "best": 1, "info": {"history": [{"epoch": NaN}]}}'],
)  # fmt: skip
def test_a_damaged_checkpoint_is_one_line(task: Task, tmp_path: Path, text: str) -> None:
    settings = Pretrain(epochs=1, batch=512)
    pretrain(task, settings, tmp_path / "c")
    (tmp_path / "c" / "checkpoint.json").write_text(text)
    with pytest.raises(RunError, match=r"Checkpoint '.*' is damaged") as caught:
        pretrain(task, settings, tmp_path / "c")
    assert "\n" not in str(caught.value)
