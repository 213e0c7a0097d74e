"""A scikit-learn estimator: rows and labels in, a compact model that predicts out. Needs the extra `sklearn`."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fieldwise.core.automatic import AUTO
from fieldwise.core.budget import Budget
from fieldwise.core.errors import SettingsError
from fieldwise.core.hints import in_estimator
from fieldwise.core.mask import Mask
from fieldwise.core.registry import resolve, unknown
from fieldwise.core.settings import Settings, check_argument, validate
from fieldwise.core.watcher import Watcher
from fieldwise.data.frame import Frame
from fieldwise.data.prepare import prepare
from fieldwise.data.rules import Tiers
from fieldwise.data.split import ColumnSplit
from fieldwise.data.store import Dataset, Split
from fieldwise.exports.predictor import Predictor
from fieldwise.models import MODELS
from fieldwise.models.factory import Build
from fieldwise.models.model import Model
from fieldwise.models.stored import check_fields
from fieldwise.pipeline.estimator_rows import is_frame, labeled, split_rows, table_of, varying
from fieldwise.pipeline.settings import tiers_for
from fieldwise.searches import DEFAULT, SEARCHES
from fieldwise.searches.search import Search, search
from fieldwise.searches.total import tables_budget, typed_budget
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.retraining import Retrain, retrain, stored_for
from fieldwise.train.task import Device, Task

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_array, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "FieldwiseClassifier needs scikit-learn 1.6 or later. Run: pip install 'fieldwise[sklearn]'."
    ) from error

S = TypeVar("S", bound=Settings)


class FieldwiseClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of two classes: trains a full model, searches its widths within a budget, retrains the small one.

    Rows are a dataframe with columns of text, categories, numbers, times or lists, or an array of numbers or text.
    Missing values are allowed. What a column means is inferred as by `fw.prepare`; `fields` overrides it.

    What can be set:

    - `budget`: upper bound of the embedding size, such as "25%", "28 columns" or "512 KiB";
    - `model`, `search`: settings, or a name with its defaults; None is DCN-V2, and elimination. A model may also be a
      function `build(schema)` that returns an `nn.Module`;
    - `pretrain`, `retrain`: settings of the training of the full and of the compact model;
    - `fields`: rules by column, such as `{"price": fw.Rule(kind="quantile")}`;
    - `min_count`: values with fewer training rows than this are unknown; auto chooses it on the validation rows;
    - `tiers`: fractions of a category's values, the most frequent first, at which it is cut into tiers; 0 is off, auto
      is 0.1 and 0.35, 0 for a budget in columns, and 0.25 for a function `build`;
    - `valid`: fraction of the rows of each class for early stopping and the search;
    - `random_state`: seed, or a numpy random state; None is 0, so that two fits are equal;
    - `device`: auto, cpu or cuda;
    - `watcher`: receives progress, such as `fw.Progress()`.

    What `fit` adds: `classes_`, the two labels; `predictor_`, the compact model with its encoder; `mask_`, the kept
    columns of each field; and, as for every estimator, `n_features_in_` and `feature_names_in_`.
    """

    def __init__(
        self,
        budget: Budget | str | int = "25%",
        *,
        model: Model | Build | str | None = None,
        search: Search | str | None = None,
        pretrain: Pretrain | None = None,
        retrain: Retrain | None = None,
        fields: dict[str, Any] | None = None,
        min_count: int | Literal["auto"] = AUTO,
        tiers: float | tuple[float, float] | Literal["auto"] = AUTO,
        valid: float = 0.1,
        random_state: Any = None,
        device: Device = "auto",
        watcher: Watcher | None = None,
    ) -> None:
        self.budget = budget
        self.model = model
        self.search = search
        self.pretrain = pretrain
        self.retrain = retrain
        self.fields = fields
        self.min_count = min_count
        self.tiers = tiers
        self.valid = valid
        self.random_state = random_state
        self.device = device
        self.watcher = watcher

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803, scikit-learn's name
        """Trains, searches and retrains on rows and their labels."""
        rows, given = self._checked(X, y)
        self.classes_, labels = np.unique(given, return_inverse=True)
        if len(self.classes_) != 2:
            raise ValueError(f"Got {len(self.classes_)} class, {self.classes_[:1]}. Allowed: labels of two classes.")
        if not 0 < self.valid < 1:
            raise SettingsError(
                f"valid={self.valid}. Allowed: above 0 and below 1, a fraction of the rows of each class."
            )
        seed = 0 if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1))
        table = table_of(rows)
        self._columns = table.column_names
        with TemporaryDirectory(prefix="fieldwise-") as folder:
            base: Any = self.model if callable(self.model) else self._named("model", MODELS, self.model, "dcnv2")
            tiers = tiers_for(base, [Budget.parse(self.budget)])
            data = self._dataset(table, labels, seed, tiers, Path(folder) / "dataset")
            task = Task(data.schema, _loaded(data.train), _loaded(data.valid), base, seed, self.device)
            encoder = data.encoder
        model, self.mask_ = self._train(task)
        self.predictor_ = Predictor(model.cpu().eval(), encoder)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Returns the probability of each class, (rows, 2)."""
        check_is_fitted(self)
        table = table_of(self._checked(X)).rename_columns(self._columns)  # by position, as scikit-learn checks them
        found = self.predictor_.predict(table).astype(np.float64)
        return np.stack([1 - found, found], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Returns the more probable class of each row, (rows,)."""
        places = self.predict_proba(X).argmax(1)
        found: NDArray[Any] = self.classes_[places]
        return found

    def _checked(self, rows: Any, labels: Any = "no_validation") -> Any:
        """Rows, and labels if given, checked as scikit-learn does; raises ValueError or TypeError."""
        fitting = not isinstance(labels, str)
        checks = {"dtype": None, "ensure_all_finite": False, "skip_check_array": is_frame(rows)}
        found = validate_data(self, rows, labels, reset=fitting, **checks)
        if not fitting:
            return found
        rows, labels = found
        check_classification_targets(labels)
        labels = column_or_1d(labels, warn=True)
        labels = check_array(labels, ensure_2d=False, dtype=None, ensure_min_samples=0, input_name="y")
        if len(np.unique(labels)) > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {type_of_target(labels)}."
            )
        return rows, labels

    def _dataset(self, table: pa.Table, labels: NDArray[np.int64], seed: int, tiers: Tiers, out: Path) -> Dataset:
        """The encoded rows; columns with one value are left out. `tiers` is what `auto` is."""
        train, valid = split_rows(labels, self.valid, seed)
        kept = varying(table, train)
        if not kept:
            raise ValueError(f"All {table.num_columns} columns have one value in {len(train)} samples. Give others.")
        rows, label, place = labeled(table.select(kept), labels, train, valid)
        gone = set(table.column_names) - set(kept)
        rules = {name: rule for name, rule in (self.fields or {}).items() if name not in gone}
        strange = next((name for name in rules if name not in kept and _column_of(rules[name]) is None), None)
        if strange is not None:
            raise SettingsError(unknown("fields", strange, table.column_names))
        given = {"fields": rules, "min_count": self.min_count, "tiers": self.tiers}
        source, problems = validate(Frame, {"frame": rows, "label": label, **given}, type(self).__name__)
        if source is None:
            raise SettingsError("\n".join(problems))
        with in_estimator():
            return prepare(source.cut(tiers), out, ColumnSplit(column=place), (self.watcher or Watcher()).rows)

    def _train(self, task: Task) -> tuple[Any, Mask]:
        """The retrained compact model, and its mask; refuses a wrong budget or search before any training."""
        watcher, budget = self.watcher or Watcher(), Budget.parse(self.budget)
        method = self._named("search", SEARCHES, self.search, DEFAULT)
        tables_budget(task.model, task.schema, budget)
        settings = self._stage("retrain", Retrain) or Retrain()
        typed = typed_budget(task.model, task.schema, budget)
        check_fields(stored_for(settings, typed).store, task.schema)  # before any training
        watcher.begin("pretrain", done=False)
        full = pretrain(task, self._stage("pretrain", Pretrain), watcher=watcher)
        task = task.starting_from(full)
        watcher.begin(f"search {budget}", done=False)
        found = search(task, method, budget, watcher=watcher)
        watcher.begin("retrain", done=False)
        return retrain(task, found.model, stored_for(settings, typed, found.mask), watcher=watcher).model, found.mask

    def _stage(self, name: str, cls: type[S]) -> S | None:
        """Settings of a training, from an object or a dict."""
        given = getattr(self, name)
        if given is None or isinstance(given, cls):
            return given
        check_argument(given, dict, name, f"fw.{cls.__name__}(epochs=4)")
        found, problems = validate(cls, given, name)
        if found is None:
            raise SettingsError("\n".join(problems))
        return found

    @staticmethod
    def _named(where: str, table: dict[str, str], given: Any, default: str) -> Any:
        """Settings, from an object or from a name with its defaults."""
        return given if isinstance(given, Settings) else resolve(where, table, given or default)()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def _column_of(rule: Any) -> str | None:
    """The raw column that a rule names, as settings or as a dict."""
    return rule.get("column") if isinstance(rule, dict) else getattr(rule, "column", None)


def _loaded(split: Split) -> Split:
    """A copy in memory, since the folder of the rows is temporary."""
    return Split(np.array(split.ids), split.labels.copy())
