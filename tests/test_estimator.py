"""The scikit-learn estimator: scikit-learn's own checks, and rows as its users have them."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator

import fieldwise as fw
from fieldwise.pipeline.estimator_rows import labeled, split_rows, table_of
from tests.models.factories import deep

SMALL = fw.FieldwiseClassifier(
    "50%",
    model=fw.models.FM(width=4),
    search=fw.searches.Magnitude(),
    pretrain=fw.Pretrain(batch=16, learning_rate=0.05, epochs=15, patience=3),
    retrain=fw.Retrain(batch=16, learning_rate=0.01, epochs=2),
    device="cpu",
)
"""Settings for tens of rows; the checks have few."""
EXPECTED_FAILURES: dict[str, str] = {}
"""Checks of scikit-learn that the estimator does not pass, with the reason. There are none."""
SKIPPED = {"check_array_api_input": "scikit-learn runs it only with SCIPY_ARRAY_API=1 and other array libraries"}
"""Checks that scikit-learn itself skips here, with its reason."""
SEVERAL_FITS = {
    "check_classifier_data_not_an_array", "check_classifiers_classes", "check_classifiers_train", "check_dtype_object",
    "check_estimators_dtypes", "check_estimators_pickle", "check_f_contiguous_array_estimator", "check_fit_idempotent",
    "check_methods_sample_order_invariance", "check_methods_subset_invariance", "check_pipeline_consistency",
    "check_positive_only_tag_during_fit", "check_supervised_y_2d",
}  # fmt: skip
"""Checks that take a second or more; `pytest -m slow` runs all."""


def name_of(check: Any) -> str:
    return str(getattr(check, "func", check).__name__)


def checks(quick: bool) -> list[Any]:
    """What `parametrize_with_checks` passes on: an estimator and a check each, as a list, which pytest asks for."""
    pairs = estimator_checks_generator(SMALL, mark="xfail", expected_failed_checks=EXPECTED_FAILURES)
    found = [pair for pair in pairs if (name_of(pair[1]) not in {*SEVERAL_FITS, *SKIPPED}) == quick]
    return [pytest.param(*pair, id=name_of(pair[1])) for pair in found]


@pytest.mark.parametrize(("estimator", "check"), checks(quick=True))
def test_the_quick_checks_of_scikit_learn_pass(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), checks(quick=False))
def test_the_other_checks_of_scikit_learn_pass(estimator: Any, check: Callable[[Any], None]) -> None:
    if name_of(check) in SKIPPED:
        with pytest.raises(SkipTest):
            check(estimator)
    else:
        check(estimator)


def test_the_page_names_every_check_that_is_skipped_or_fails() -> None:
    page = (Path(__file__).parent.parent / "docs" / "notebook.md").read_text(encoding="utf-8")
    for name, reason in {**EXPECTED_FAILURES, **SKIPPED}.items():
        assert f"| `{name}` | {reason} |" in page


@pytest.fixture(scope="module")
def clicks() -> tuple[pd.DataFrame, pd.Series]:
    """Rows of every kind of column; the user decides."""
    draw = np.random.default_rng(0)
    user = draw.integers(0, 12, 400)
    frame = pd.DataFrame(
        {
            "user": [f"u{u}" for u in user],
            "city": pd.Categorical([f"c{c}" for c in draw.integers(0, 5, 400)]),
            "price": np.where(draw.random(400) < 0.05, np.nan, draw.gamma(2.0, 3.0, 400)),
            "count": draw.integers(0, 9, 400),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 10_000, 400), unit="min"),
            "tags": [[f"t{t}", f"t{t + 1}"] for t in draw.integers(0, 4, 400)],
            "member": draw.random(400) < 0.5,
            "constant": "same",
        },
        index=pd.Index(range(1000, 1400), name="row"),
    )
    clicked = (user % 2 == 0) ^ (draw.random(400) < 0.05)
    return frame, pd.Series(np.where(clicked, "yes", "no"), index=frame.index, name="clicked")


@pytest.fixture(scope="module")
def fitted(clicks: tuple[pd.DataFrame, pd.Series]) -> fw.FieldwiseClassifier:
    found: fw.FieldwiseClassifier = clone(SMALL).fit(*clicks)
    return found


def test_a_frame_of_every_kind_of_column_is_learned(
    clicks: tuple[pd.DataFrame, pd.Series], fitted: fw.FieldwiseClassifier
) -> None:
    frame, labels = clicks
    assert fitted.score(frame, labels) > 0.9
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.feature_names_in_.tolist() == list(frame.columns)
    assert "constant" not in fitted.mask_.full.schema.names, "one value in all rows"
    assert fitted.mask_.params <= fitted.mask_.full.params / 2
    found = fitted.predict_proba(frame)
    assert found.shape == (400, 2)
    np.testing.assert_allclose(found.sum(1), 1)
    np.testing.assert_array_equal(fitted.predict(frame), fitted.classes_[found.argmax(1)])
    rest = [name for name in frame.columns if name not in fitted.predictor_.columns]
    assert "constant" in rest
    changed = frame.assign(**dict.fromkeys(rest, "other"))
    np.testing.assert_array_equal(fitted.predict_proba(changed), found)


def test_unseen_and_missing_values_are_predicted(
    clicks: tuple[pd.DataFrame, pd.Series], fitted: fw.FieldwiseClassifier
) -> None:
    strange = clicks[0].head(4).assign(user=["new", None, "u1", "u2"], price=[np.nan, np.inf, -np.inf, 1e300])
    assert np.isfinite(fitted.predict_proba(strange)).all()


def test_pickles_clones_and_exports_predict_the_same(
    clicks: tuple[pd.DataFrame, pd.Series], fitted: fw.FieldwiseClassifier, tmp_path: Path
) -> None:
    frame, _ = clicks
    expected = fitted.predict_proba(frame)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(frame), expected)
    fw.export(fitted.predictor_.model, tmp_path / "model", fitted.predictor_.encoder, fitted.mask_)
    np.testing.assert_array_equal(fw.load(tmp_path / "model").predict(frame), expected[:, 1].astype(np.float32))
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copied.predict(frame)


def test_a_function_that_builds_any_module_is_a_model_too(clicks: tuple[pd.DataFrame, pd.Series]) -> None:
    found = clone(SMALL).set_params(model=deep).fit(*clicks)
    expected = found.predict_proba(clicks[0])
    assert found.mask_.params <= found.mask_.full.params / 2
    assert {"user", "city", "price", "tags"} <= set(found.mask_.full.schema.names), "a time is several fields"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).predict_proba(clicks[0]), expected)


def test_a_grid_over_budgets_and_settings(clicks: tuple[pd.DataFrame, pd.Series]) -> None:
    frame, labels = clicks
    quick = clone(SMALL).set_params(pretrain=fw.Pretrain(batch=32, epochs=1), retrain=fw.Retrain(epochs=1))
    grid = GridSearchCV(quick, {"budget": ["25%", fw.Budget.columns(5)]}, cv=2, scoring="roc_auc")
    grid.fit(frame[["user", "price"]], labels == "yes")
    assert grid.best_estimator_.mask_.columns > 0
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()


def test_two_fits_are_equal_and_another_state_is_another_fit(clicks: tuple[pd.DataFrame, pd.Series]) -> None:
    frame, labels = clicks[0][["user", "price"]], clicks[1]
    quick = clone(SMALL).set_params(pretrain=fw.Pretrain(batch=32, epochs=1), retrain=fw.Retrain(epochs=1))
    first = clone(quick).fit(frame, labels).predict_proba(frame)
    np.testing.assert_array_equal(clone(quick).fit(frame, labels).predict_proba(frame), first)
    other = clone(quick).set_params(random_state=np.random.RandomState(3)).fit(frame, labels).predict_proba(frame)
    assert not np.array_equal(other, first)


def test_arrays_of_numbers_and_names_of_settings() -> None:
    rows = np.random.default_rng(1).integers(0, 4, (200, 3))
    labels = (rows[:, 0] + rows[:, 1]) % 2
    found = clone(SMALL).set_params(model="fm", search="uniform").fit(rows, labels)
    assert found.score(rows, labels) > 0.8
    assert found.mask_.full.schema.names == ("x0", "x1", "x2")
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    with pytest.warns(UserWarning, match="X has feature names"):
        np.testing.assert_array_equal(found.predict(frame), found.predict(rows))


def test_frequent_and_rare_values_are_two_fields() -> None:
    rows = np.random.default_rng(1).integers(0, 120, (600, 2)).astype(str)
    quick = clone(SMALL).set_params(pretrain=fw.Pretrain(batch=64, epochs=1), min_count=1, tiers=0.25)
    found = quick.fit(rows, rows[:, 0] > "5")
    assert found.mask_.full.schema.names == ("x0:frequent", "x0:rare", "x1:frequent", "x1:rare")
    assert found.mask_.full.schema.cardinalities[0] == 31
    assert set(found.predictor_.columns) <= {"x0", "x1"}
    assert found.predict_proba(rows).shape == (600, 2)


def test_tables_of_arrow_and_labels_of_any_two_values(clicks: tuple[pd.DataFrame, pd.Series]) -> None:
    table = pa.Table.from_pandas(clicks[0][["user", "city"]], preserve_index=False)
    labels = pd.Categorical(clicks[1])
    found = clone(SMALL).set_params(pretrain=fw.Pretrain(batch=32, epochs=1)).fit(table, labels)
    assert found.feature_names_in_.tolist() == ["user", "city"]
    assert set(found.predict(table)) <= {"no", "yes"}
    flags = clone(SMALL).set_params(pretrain=fw.Pretrain(batch=32, epochs=1)).fit(table, clicks[1] == "yes")
    assert flags.predict(table).dtype == bool


def test_cross_validation_runs_the_whole_pipeline(clicks: tuple[pd.DataFrame, pd.Series]) -> None:
    quick = clone(SMALL).set_params(pretrain=fw.Pretrain(batch=32, epochs=2), watcher=fw.Progress())
    scores = cross_val_score(quick, clicks[0][["user"]], clicks[1], cv=2)
    assert scores.shape == (2,)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"budget": "lots"}, fw.FieldwiseError, "Budget 'lots' is not understood"),
        ({"budget": "9999 columns"}, fw.FieldwiseError, "is above the full size"),
        ({"valid": 1.5}, fw.FieldwiseError, "valid=1.5. Allowed: above 0 and below 1"),
        ({"min_count": 0}, fw.FieldwiseError, r"^\[FieldwiseClassifier\] min_count = 0: input should be greater than"),
        (
            {"tiers": 1},
            fw.FieldwiseError,
            r"^\[FieldwiseClassifier\] tiers = 1: allowed: 0 \(one field\), a fraction below 1, ",
        ),
        ({"fields": {"user": {"bin": 3}}}, fw.FieldwiseError, r"^\[FieldwiseClassifier.fields.user\] unknown 'bin'"),
        ({"search": "hamm"}, fw.FieldwiseError, "Did you mean 'ham'"),
        ({"fields": {"usr": fw.Rule(kind="category")}}, fw.FieldwiseError, "unknown 'usr'. Did you mean 'user'"),
        ({"budget": 0.25}, fw.FieldwiseError, "For a fraction of the full size, write '25%'"),
        ({"device": "gpu"}, fw.FieldwiseError, "device = 'gpu'. Choose from: auto, cpu, cuda"),
        ({"pretrain": {"epochs": 0}}, fw.FieldwiseError, r"\[pretrain\] epochs = 0"),
        ({"pretrain": "fast"}, fw.FieldwiseError, r"pretrain is 'fast'. Allowed: an object such as fw.Pretrain\("),
    ],
    ids=[
        "budget",
        "large budget",
        "valid",
        "min_count",
        "tiers",
        "rule",
        "search",
        "fields",
        "fraction",
        "device",
        "dict",
        "text",
    ],
)
def test_wrong_settings_are_named(
    change: dict[str, Any], error: type[Exception], says: str, clicks: tuple[pd.DataFrame, pd.Series]
) -> None:
    quick = clone(SMALL).set_params(**{"pretrain": fw.Pretrain(epochs=1), **change})
    with pytest.raises(error, match=says):
        quick.fit(clicks[0][["user", "price"]], clicks[1])


def test_labels_and_columns_that_cannot_be_learned_are_named(clicks: tuple[pd.DataFrame, pd.Series]) -> None:
    frame, labels = clicks[0][["user"]], clicks[1]
    with pytest.raises(ValueError, match="Got 1 class"):
        clone(SMALL).fit(frame, ["yes"] * 400)
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        clone(SMALL).fit(frame, np.arange(400) % 3)
    with pytest.raises(ValueError, match="All 1 columns have one value"):
        clone(SMALL).fit(clicks[0][["constant"]], labels)
    days = frame.assign(day=pd.period_range("2024-01", periods=len(frame), freq="D"))
    for given, says in (
        (frame.assign(a=[{"x": 1}] * len(frame)), r"Exclude it with X.drop\(columns=\['a'\]\), or convert it."),
        (days, r"Column 'day' holds extension<pandas.period.*X.drop\(columns=\['day'\]\)"),
    ):
        with pytest.raises(fw.FieldwiseError, match=says):
            clone(SMALL).fit(given, labels)
    with pytest.raises(fw.FieldwiseError, match=r"Keep a column with fields=\{'id': \{\}\}\."):
        clone(SMALL).fit(pd.DataFrame({"id": np.arange(1_200)}), np.arange(1_200) % 2)


def test_the_split_keeps_both_classes_in_both_parts() -> None:
    labels = np.asarray([0] * 50 + [1])
    train, valid = split_rows(labels, 0.1, seed=0)
    assert set(labels[train]) == set(labels[valid]) == {0, 1}
    assert 50 in train, "the only row of its class is in both"
    assert 50 in valid
    assert len(train) + len(valid) == 52
    rows, label, place = labeled(table_of(pd.DataFrame({"label": range(51), "Split": "x"})), labels, train, valid)
    assert (label, place) == ("label_", "split_")
    assert rows.column_names == ["label", "Split", "label_", "split_"]
