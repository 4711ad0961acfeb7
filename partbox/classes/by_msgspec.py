"""Read msgspec Structs and attrs classes."""

from typing import Any, Final

from partbox.classes.reader import NotJsonError, UnfitError, UnreadableError
from partbox.errors import SettingsError
from partbox.platform import library
from partbox.text.printing import make_visible

# Beginnings of msgspec's messages that quote nothing of the payload. A validator of attrs may quote anything.
_WITHOUT_VALUE: Final = ("Expected ", "Object missing ", "Object contains unknown field", "Input data was truncated")


class MsgspecReader:
    """A converter of event payloads into instances of one msgspec Struct or attrs class.

    The conversion is done by msgspec. Validators of attrs run. Converters of attrs run only for values that are
    given."""

    def __init__(self, cls: Any) -> None:
        try:
            self._msgspec = library("msgspec", "attrs", f"{cls.__qualname__} is read by msgspec")
        except SettingsError as missing:
            raise UnreadableError(str(missing)) from None
        self._cls = cls
        # The schema fails for a field that msgspec cannot read. The decoder would fail only on the first payload.
        self.build_schema()
        self._decode = self._msgspec.json.Decoder(cls).decode

    def from_json(self, text: bytes) -> Any:
        try:
            return self._decode(text)
        except self._msgspec.ValidationError as error:
            problem, is_json = _describe_problem(error), True
        except (self._msgspec.DecodeError, RecursionError) as error:
            problem, is_json = type(error).__name__, False
        raise UnfitError(problem) if is_json else NotJsonError(problem)

    def from_python(self, value: Any) -> Any:
        try:
            return self._msgspec.convert(value, self._cls, str_keys=True)
        except self._msgspec.ValidationError as error:
            problem = _describe_problem(error)
        except RecursionError:
            problem = "payload: it is nested too deep"
        raise UnfitError(problem)

    def build_schema(self) -> dict[str, Any]:
        try:
            return self._msgspec.json.schema(self._cls)  # type: ignore[no-any-return]
        except (TypeError, NameError) as error:
            raise UnreadableError(str(error).strip().rpartition("\n")[2]) from error


def _describe_problem(error: Exception) -> str:
    """Describe where and why a payload does not fit its class, without quoting the payload's value."""
    # Only the first part that does not fit is described.
    said, _, place = str(error).partition(" - at ")
    said = make_visible(said) if said.startswith(_WITHOUT_VALUE) else "it is not valid"
    return f"{place.strip('`').removeprefix('$.') or 'payload'}: {said}"
