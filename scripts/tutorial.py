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
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
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

    def type(self, command: str) -> str:
        """Run it, and wait for its end; what it printed. The script ends here if it failed."""
        self.start(command)
        return self.wait()

    def start(self, command: str) -> None:
        """Run it, and do not wait."""
        print(f"$ {command}", flush=True)
        assert self._shell.stdin is not None
        print(f'{command}\necho "{ENDED} $?"', file=self._shell.stdin, flush=True)

    def wait(self) -> str:
        """What the running command prints until it ends."""
        assert self._shell.stdout is not None
        printed = []
        for line in self._shell.stdout:
            if line.startswith(ENDED):
                if line.split()[-1] != "0":
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

    def __init__(self, page: str, folder: Path, wheel: Path) -> None:
        self._blocks = BLOCK.findall(page)
        self._folder = folder
        self._wheel = wheel
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith("PARTBOX_")}
        self._terminals: list[Terminal] = []

    def follow(self) -> None:
        install, shop, deliver, enter, cluster, application = self._blocks
        first = self._terminal()
        self._type(first, install)
        self._write("shop.py", shop)
        self._has_delivered(self._type(first, deliver), 10)
        nodes = [self._terminal() for _ in commands(cluster)]
        for node, command in zip(nodes, commands(cluster), strict=True):
            self._type(node, enter)
            node.start(command)
        self._until(first, {64: 4})
        first.type("python shop.py")
        self._stop(nodes[1], 0)
        workers = self._until(first, {128: 2})
        os.kill(min(workers), signal.SIGKILL)
        assert min(workers) not in self._until(first, {128: 2}, without=min(workers))
        printed = self._stop(nodes[0], 0)
        assert "killed" in printed or "SIGKILL" in printed, printed
        self._write("application.py", application)
        self._has_delivered(first.type("python application.py"), 10)
        for terminal in self._terminals:
            terminal.close()

    def _terminal(self) -> Terminal:
        self._terminals.append(Terminal(self._folder, self._environment))
        return self._terminals[-1]

    def _type(self, terminal: Terminal, block: tuple[str, str]) -> str:
        wheel = f"{self._wheel}[embedded]"
        return "".join(terminal.type(line.replace("../partbox[embedded]", wheel)) for line in commands(block))

    def _write(self, name: str, block: tuple[str, str]) -> None:
        kind, text = block
        assert kind == "python", text
        (self._folder / "shop" / name).write_text(text, encoding="utf-8")

    def _stop(self, node: Terminal, status: int) -> str:
        node.press_ctrl_c()
        return node.wait()

    def _until(self, terminal: Terminal, shares: dict[int, int], without: int = 0) -> set[int]:
        """Wait until so many processes have so many partitions each; their process ids."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            said = json.loads(terminal.type("partbox status --json"))
            owners = Counter(partition["owner"] for partition in said["partitions"])
            pids = {instance["pid"] for instance in said["instances"] if instance["instance_id"] in owners}
            if Counter(owners.values()) == shares and without not in pids:
                return pids
            time.sleep(0.5)
        sys.exit(f"the partitions are not shared as {shares} (partitions: processes) within {PATIENCE} s: {owners}")

    def _has_delivered(self, printed: str, events: int) -> None:
        found = printed.count(" of order ")
        if found != events:
            sys.exit(f"{found} events were delivered, not {events}:\n{printed}")


def commands(block: tuple[str, str]) -> list[str]:
    kind, text = block
    assert kind == "console", text
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


def main() -> None:
    wheel = Path(sys.argv[1]).resolve()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="partbox-tutorial-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        Tutorial(PAGE.read_text(encoding="utf-8"), Path(folder), wheel).follow()
    print(f"the tutorial works: typed in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
