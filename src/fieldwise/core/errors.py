"""What can go wrong by the user's hand; the command line shows these as one line and exits with 2.

FieldwiseError
├── SettingsError   a setting, name or flag that is not understood
├── BudgetError     a size that cannot be met
├── MaskError       kept columns that do not fit their fields
├── DataError       raw rows or a dataset folder that cannot be used
├── RunError        a run folder that is incomplete, damaged or made otherwise
├── DiskError       a folder that has no room left
└── TrainingError   a training that cannot go on
"""


class FieldwiseError(Exception):
    """A mistake the user can mend. Says what, what was got, what is allowed and what to do."""


class SettingsError(FieldwiseError, ValueError):
    """A setting, name or flag that is not understood."""


class BudgetError(FieldwiseError, ValueError):
    """A size that cannot be met, or is out of range."""


class MaskError(FieldwiseError, ValueError):
    """Kept columns that do not fit the fields they are meant for."""


class DataError(FieldwiseError):
    """Raw rows or a dataset folder that cannot be used."""


class RunError(FieldwiseError):
    """A run folder that is incomplete, damaged or was made with other settings."""


class DiskError(FieldwiseError):
    """A folder that has no room left for what must be written."""


class TrainingError(FieldwiseError):
    """A training that cannot go on, such as a loss that is not a number."""
