"""Flags that a signal handler sets while the main thread waits."""

from forked_commands import shared

PROGRAM = """
import os, signal, threading, time
from partbox.supervisor.signals import SignalFlag

flag, enough = SignalFlag(), SignalFlag()
signal.signal(signal.SIGUSR1, lambda *_: enough.is_set() or None)
signal.signal(signal.SIGUSR2, lambda *_: flag.set())

def shower():
    for _ in range(2_000):
        os.kill(os.getpid(), signal.SIGUSR1)
    for _ in range(200):
        os.kill(os.getpid(), signal.SIGUSR2)

thread = threading.Thread(target=shower)
thread.start()
while not flag.wait(0.001):
    pass
thread.join()
print(flag.is_set())
"""


def test_many_signals_at_once_set_the_flag_and_interrupt_no_thread(tmp_path):
    program = tmp_path / "shower.py"
    program.write_text(PROGRAM)
    process = shared().start("python", str(program))
    assert process.communicate() == ("True\n", "")
    assert process.returncode == 0
