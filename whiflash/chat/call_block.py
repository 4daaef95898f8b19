"""The JSON object inside one `<tool_call>` block, read as it comes."""

from __future__ import annotations

from whiflash.chat.json_scan import JsonScanError, ObjectScanner, read_string
from whiflash.chat.messages import ToolCall, read_arguments
from whiflash.core.errors import InvalidRequestError

_ARGUMENT_KEYS = ("arguments", "parameters")


class CallBlock:
    """Reads `{"name": N, "arguments": {...}}` with its keys in any order; other keys are skipped,
    missing arguments are an empty object. `parameters` is another word for `arguments`.

    name: None until it is known. `take_arguments` hands the text of the arguments out in pieces,
    none before the name is known.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._object = ObjectScanner()
        self._arguments: str | None = None  # once they are whole
        self._is_reading_arguments = False
        self._members = 0
        self._num_taken = 0

    @property
    def is_done(self) -> bool:
        """The closing brace was read and the call is complete."""
        return self._object.is_done

    @property
    def is_started(self) -> bool:
        """The name is known and the arguments have begun."""
        has_arguments = self._is_reading_arguments or self._arguments is not None
        return self.name is not None and has_arguments

    def feed(self, char: str) -> None:
        """Takes the next character. Raises JsonScanError where no call can come of it."""
        self._object.feed(char)
        if self._object.key in _ARGUMENT_KEYS and self._arguments is None:
            self._follow_arguments()
        if self._object.members > self._members:
            self._members = self._object.members
            self._end_member(self._object.key)
        if self._object.is_done:
            self._end_object()

    def take_arguments(self) -> str:
        """The piece of the arguments that was not handed out yet."""
        if not self.is_started:
            return ""
        if self._arguments is None:
            piece = self._object.value(self._num_taken)
        else:
            piece = self._arguments[self._num_taken :]
        self._num_taken += len(piece)
        return piece

    def call(self) -> ToolCall:
        """The complete call. Only once `is_done`."""
        if self.name is None or self._arguments is None or not self.is_done:
            raise RuntimeError("call() before the object is complete")
        return ToolCall(self.name, self._arguments)

    def _follow_arguments(self) -> None:
        if self._is_reading_arguments or not (start := self._object.value()):
            return
        if start[0] != "{":
            raise JsonScanError("the arguments are not a JSON object")
        self._is_reading_arguments = True

    def _end_member(self, key: str) -> None:
        if key == "name":
            if self.name is not None:
                raise JsonScanError("the call has two names")
            self.name = read_string(self._object.value())
            if not self.name:
                raise JsonScanError("the call's name is empty")
        elif key in _ARGUMENT_KEYS:
            self._end_arguments()

    def _end_arguments(self) -> None:
        if self._arguments is not None:
            raise JsonScanError("the call has arguments twice")
        self._arguments = self._object.value()
        try:
            read_arguments(self._arguments)
        except InvalidRequestError as error:
            raise JsonScanError(str(error)) from None

    def _end_object(self) -> None:
        if self.name is None:
            raise JsonScanError("the call has no name")
        if self._arguments is None:
            self._arguments = "{}"
