"""What a command was killed by can always be said."""

import signal

from hermes.exec.process.signals import signal_name


def test_every_signal_has_a_name() -> None:
    assert [signal_name(n) for n in (9, 11, 40)] == ["SIGKILL", "SIGSEGV", "SIGRTMIN+6"]
    assert all(signal_name(n) for n in range(1, signal.NSIG + 5))
