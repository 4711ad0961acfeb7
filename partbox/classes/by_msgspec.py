"""Reads msgspec Structs and attrs classes."""

from typing import Any, Final

from partbox.classes.reader import NotJsonError, UnfitError, UnreadableError
from partbox.errors import SettingsError
from partbox.platform import library
from partbox.text.printing import visible

_WITHOUT_VALUE: Final = ("Expected ", "Object missing ", "Object contains unknown field", "Input data was truncated")
"""Beginnings of what msgspec says that quote nothing of a payload; a validator of attrs quotes what it likes."""


class MsgspecReader:
    """Reads one class. Validators of attrs run, its converters only where a value is given."""

    def __init__(self, cls: Any) -> None:
        try:
            self._msgspec = library("msgspec", "attrs", f"{cls.__qualname__} is read by msgspec")
        except SettingsError as missing:
            raise UnreadableError(str(missing)) from None
        self._cls = cls
        self.schema()  # it meets a field that msgspec cannot read, which the decoder does only with a payload
        self._decode = self._msgspec.json.Decoder(cls).decode

    def from_json(self, text: bytes) -> Any:
        try:
            return self._decode(text)
        except self._msgspec.ValidationError as error:
            problem, is_json = _problem(error), True
        except (self._msgspec.DecodeError, RecursionError) as error:
            problem, is_json = type(error).__name__, False
        raise UnfitError(problem) if is_json else NotJsonError(problem)

    def from_python(self, value: Any) -> Any:
        try:
            return self._msgspec.convert(value, self._cls, str_keys=True)
        except self._msgspec.ValidationError as error:
            problem = _problem(error)
        except RecursionError:
            problem = "payload: it is nested too deep"
        raise UnfitError(problem)

    def schema(self) -> dict[str, Any]:
        try:
            return self._msgspec.json.schema(self._cls)  # type: ignore[no-any-return]
        except (TypeError, NameError) as error:
            raise UnreadableError(str(error).strip().rpartition("\n")[2]) from error


def _problem(error: Exception) -> str:
    """The first thing that does not fit, without the value."""
    said, _, place = str(error).partition(" - at ")
    said = visible(said) if said.startswith(_WITHOUT_VALUE) else "it is not valid"
    return f"{place.strip('`').removeprefix('$.') or 'payload'}: {said}"
