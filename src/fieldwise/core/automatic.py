"""Settings that are a number or `auto`, for values that the library chooses from the data."""

from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

Auto = Literal["auto"]
AUTO: Final[Auto] = "auto"


def number_or_auto(number: Any) -> WrapValidator:
    """A validator for `number | Auto` whose errors are those of the number, for example `Annotated[int, Field(ge=2)]`.

    A plain union would report one problem per member.
    """
    adapter: TypeAdapter[int] = TypeAdapter(number)

    def check(value: Any, _handler: ValidatorFunctionWrapHandler) -> Any:
        if value == AUTO:
            return AUTO
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            raise PydanticCustomError(first["type"], "{text}", {"text": first["msg"]}) from None

    return WrapValidator(check)


def chosen(value: "int | Auto") -> int:
    """The number of a setting that was chosen already."""
    assert value != AUTO, "settings must be fitted to the rows first"
    return value
