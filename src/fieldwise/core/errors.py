"""Errors that a user can fix; the command line shows each as one line and exits with 2.

FieldwiseError
├── SettingsError   a setting, name or flag that is not understood
├── BudgetError     a size that cannot be met
├── MaskError       kept columns that do not fit their fields
├── DataError       raw rows or a dataset folder that cannot be used
├── RunError        a run folder that is incomplete, damaged or made with other settings
├── DiskError       a disk that is full
├── TrainingError   a training that cannot continue
└── ElsewhereError  another process of a training failed, whose own error says why
"""


class FieldwiseError(Exception):
    """An error the user can fix. The message says what is wrong, what was given, what is allowed and what to do."""


class SettingsError(FieldwiseError, ValueError):
    """A setting, name or flag that is not understood."""


class BudgetError(FieldwiseError, ValueError):
    """A size that cannot be met, or is out of range."""


class MaskError(FieldwiseError, ValueError):
    """Kept columns that do not fit their fields."""


class DataError(FieldwiseError):
    """Raw rows or a dataset folder that cannot be used."""


class RunError(FieldwiseError):
    """A run folder that is incomplete, damaged or was made with other settings."""


class DiskError(FieldwiseError):
    """A disk that is too full to write to."""


class TrainingError(FieldwiseError):
    """A training that cannot continue, for example because its loss became NaN."""


class ElsewhereError(FieldwiseError):
    """Another process of a training failed, and reports its own error; the command line shows only that one."""
