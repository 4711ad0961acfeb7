"""Types docs/tutorial.md as a newcomer does, in an empty folder with nothing but the wheel, and looks at what comes.

    python3 scripts/tutorial.py WHEEL

Every command and program is the page's own, and each is typed: one that is added to the page and not known here is an
error. Only two things differ: the wheel is installed where the page installs a clone, and the folder is one that
PostgreSQL may enter as another user.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tutorial_page import alike, blocks, commands, with_confirm

T = TypeVar("T")
DELIVERED = re.compile(r"^order \d+ is (?:placed: (?:(?!order).)+|shipped)$", re.MULTILINE)
ENDED = "-- ended:"
PATIENCE = 60  # seconds


class Terminal:
    """A shell that is typed into."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(self, command: str, status: str = "0") -> str:
        """Run it, and wait for its end; what it printed. The script ends here if it ended otherwise than expected."""
        self.start(command)
        return self.wait(status)

    def start(self, command: str) -> None:
        """Run it, and do not wait."""
        print(f"$ {command}", flush=True)
        assert self._shell.stdin is not None
        print(f'{command}\necho "{ENDED} $?"', file=self._shell.stdin, flush=True)

    def wait(self, status: str = "0") -> str:
        """What the running command prints until it ends; `status` is a regular expression of its exit code."""
        assert self._shell.stdout is not None
        printed = []
        for line in self._shell.stdout:
            if line.startswith(ENDED):
                if not re.fullmatch(status, line.split()[-1]):
                    sys.exit(f"it failed:\n{''.join(printed)}")
                return "".join(printed)
            printed.append(line)
        sys.exit(f"the shell has ended:\n{''.join(printed)}")

    def press_ctrl_c(self) -> None:
        """What a terminal does: everything that runs in it gets the signal."""
        os.killpg(self._shell.pid, signal.SIGINT)

    def close(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()


class Tutorial:
    """The page, block by block."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self._folder = folder
        self._wheel = wheel
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith("PARTBOX_")}
        self._terminals: list[Terminal] = []

    def follow(self) -> None:
        install, deliver, enter, cluster, *trouble = blocks("console")
        shop, application, broken, mended = blocks("python")
        first = self._terminal()
        self._type(first, install)
        self._write("shop.py", shop)
        self._has_delivered(self._type(first, deliver), 10)
        nodes = [self._terminal() for _ in commands(cluster)]
        self._cluster(first, nodes, enter, cluster)
        self._write("application.py", application)
        self._has_delivered(first.type("python application.py"), 10)
        self._trouble(first, nodes[0], trouble, [with_confirm(shop, each) for each in (broken, mended)])
        for terminal in self._terminals:
            terminal.close()

    def _cluster(self, first: Terminal, nodes: list[Terminal], enter: str, cluster: str) -> None:
        for node, (command, _) in zip(nodes, commands(cluster), strict=True):
            self._type(node, enter)
            node.start(command)
        self._until(first, {64: 4})
        first.type("python shop.py")
        self._stop(nodes[1])
        workers = self._until(first, {128: 2})
        os.kill(min(workers), signal.SIGKILL)
        assert min(workers) not in self._until(first, {128: 2}, without=min(workers))
        printed = self._stop(nodes[0])
        assert "killed" in printed or "SIGKILL" in printed, printed

    def _trouble(self, first: Terminal, node: Terminal, trouble: list[str], shops: list[str]) -> None:
        start, ask, retry, again, ask_again = map(commands, trouble)
        (sell, _), (doctor, found) = ask
        self._write("shop.py", shops[0])
        node.start(start[0][0])
        first.type(sell)
        self._answers(first, doctor, found)
        self._stop(node)
        self._write("shop.py", shops[1])
        self._answers(first, *retry[0])
        node.start(again[0][0])
        self._until_nothing_waits(first)
        self._answers(first, *ask_again[0])
        self._has_delivered(self._stop(node), 2)

    def _answers(self, terminal: Terminal, command: str, answer: str) -> None:
        """Type it until it prints what the page says: a person is slower."""
        expected = alike(answer)
        eventually(lambda: alike(terminal.type(command, "[01]")) == expected, f"{command!r} says what the page says")

    def _terminal(self) -> Terminal:
        self._terminals.append(Terminal(self._folder, self._environment))
        return self._terminals[-1]

    def _type(self, terminal: Terminal, block: str) -> str:
        wheel = f"{self._wheel}[embedded,worker]"
        return "".join(terminal.type(line.replace("../partbox[embedded,worker]", wheel)) for line, _ in commands(block))

    def _write(self, name: str, text: str) -> None:
        (self._folder / "shop" / name).write_text(text, encoding="utf-8")

    def _stop(self, node: Terminal) -> str:
        node.press_ctrl_c()
        return node.wait()

    def _until(self, terminal: Terminal, shares: dict[int, int], without: int = 0) -> set[int]:
        """Wait until so many processes have so many partitions each; their process ids."""

        def shared() -> set[int] | None:
            said = json.loads(terminal.type("partbox status --json"))
            owners = Counter(partition["owner"] for partition in said["partitions"])
            pids = {instance["pid"] for instance in said["instances"] if instance["instance_id"] in owners}
            return pids if Counter(owners.values()) == shares and without not in pids else None

        return eventually(shared, f"the partitions are shared as {shares} (partitions: processes)")

    def _until_nothing_waits(self, terminal: Terminal) -> None:
        def nothing() -> bool:
            said = json.loads(terminal.type("partbox status --json"))
            return not said["pending"] and not said["parked"]

        eventually(nothing, "all is delivered")

    def _has_delivered(self, printed: str, events: int) -> None:
        found = len(DELIVERED.findall(printed))
        if found != events:
            sys.exit(f"{found} events were delivered, not {events}:\n{printed}")


def eventually(check: Callable[[], T | None], what: str) -> T:
    """The first truthy value of `check()`. The script ends here if there is none in time."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := check():
            return found
        time.sleep(0.5)
    sys.exit(f"not within {PATIENCE} s: {what}")


def main() -> None:
    wheel = Path(sys.argv[1]).resolve()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="partbox-tutorial-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        Tutorial(Path(folder), wheel).follow()
    print(f"the tutorial works: typed in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
