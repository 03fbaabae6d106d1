"""Names signals."""

from signal import SIGRTMIN, Signals


def signal_name(number: int) -> str:
    """The name of a signal; Python itself has none for most real-time signals."""
    try:
        return Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - SIGRTMIN}" if number > SIGRTMIN else f"signal {number}"
