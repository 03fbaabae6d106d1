"""Parses server-sent events; the result does not depend on how the stream is cut."""

from hermes.core.errors import Failure, Kind, ProviderError

MAX_EVENT = 64 * 1024 * 1024
"""Lines may have any length, but an endless event must not fill the memory."""
_BOM = b"\xef\xbb\xbf"


class SseParser:
    """Lines end in LF, CRLF or CR. Complete lines are parsed at once; only an unfinished line is
    kept, as a list of pieces, so that small pieces do not make it slow."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = ""
        self._names: dict[bytes, str] = {}
        self._size = 0
        """Bytes held for an incomplete event."""
        self._first = True
        self._after_cr = False
        self._between = False
        """Whether the last read ended at the end of an event, with nothing held."""
        self.garbage = 0
        """Skipped lines that were neither a field nor a comment."""

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """(event name, data) of each event that `data` completes."""
        if (  # by far the most common read: one complete event of one line
            self._between
            and data.find(b"\n") == len(data) - 2
            and data[:6] == b"data: "
            and data[-1] == 10
            and b"\r" not in data
        ):
            return [("", data[6:-2])]
        if self._after_cr:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        self._between = False
        if b"\r" in data:
            self._after_cr = data[-1:] == b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        elif b"\n" not in data:
            if data:
                self._line.append(data)
                self._hold_bytes(len(data))
            return []
        if self._line:
            self._line.append(data)
            data = b"".join(self._line)
            self._line.clear()
        if self._first:
            self._first = False
            data = data.removeprefix(_BOM)
        return self._split_events(data)

    def close(self) -> list[tuple[str, bytes]]:
        """The last event, if the stream ended without a blank line after it."""
        out: list[tuple[str, bytes]] = []
        if self._line:
            line = b"".join(self._line)
            self._line.clear()
            self._take_line(line.removeprefix(_BOM) if self._first else line, out)
        self._take_line(b"", out)
        return out

    def _split_events(self, data: bytes) -> list[tuple[str, bytes]]:
        out: list[tuple[str, bytes]] = []
        append = out.append
        blocks = data.split(b"\n\n")
        rest = blocks.pop()
        if blocks:
            self._size = 0
            if self._data or self._name:
                self._take_block(blocks.pop(0), out)
        names = self._names
        for block in blocks:
            end = block.find(b"\n")
            if end < 0:
                if block[:6] == b"data: ":
                    append(("", block[6:]))
                    continue
            elif block[end + 1 : end + 7] == b"data: " and block[:7] == b"event: ":
                name = names.get(block[7:end])
                if name is not None and block.find(b"\n", end + 7) < 0:
                    append((name, block[end + 7 :]))
                    continue
            self._take_block(block, out)
        if rest:
            lines = rest.split(b"\n")
            last = lines.pop()
            for line in lines:
                self._take_line(line, out)
            if last:
                self._line.append(last)
            self._hold_bytes(len(rest))
        self._between = not (self._line or self._data or self._name or self._after_cr)
        return out

    def _take_block(self, block: bytes, out: list[tuple[str, bytes]]) -> None:
        """Take the lines before a blank line, and the blank line."""
        for line in block.split(b"\n"):
            self._take_line(line, out)
        self._take_line(b"", out)

    def _take_line(self, line: bytes, out: list[tuple[str, bytes]]) -> None:
        if not line:
            if self._data:
                out.append((self._name, b"\n".join(self._data)))
                self._data = []
            self._name = ""
            self._size = 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = self._decode_name(value)
        elif field not in (b"", b"id", b"retry"):
            self.garbage += 1

    def _decode_name(self, name: bytes) -> str:
        """The event name; each is decoded once, as names repeat thousands of times."""
        if name not in self._names and len(self._names) < 100:
            self._names[name] = name.decode("utf-8", "replace")
        return self._names.get(name) or name.decode("utf-8", "replace")

    def _hold_bytes(self, size: int) -> None:
        self._size += size
        if self._size > MAX_EVENT:
            text = "an event of the stream is too large"
            raise ProviderError(Failure(Kind.ANSWER_TOO_LARGE, text))
