"""Builds the site of the documentation: docs/, README and CHANGELOG, and llms.txt for readers that are programs.

Zensical writes below the folder of its configuration, so docs/ is copied first: nothing is written into it.
"""

import argparse
import contextlib
import functools
import http.server
import shutil
import subprocess
import sys
from pathlib import Path

from site_pages import llms, staged

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".partbox" / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/docs", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="show the site at a free port of this machine")
    given = parser.parse_args()
    build()
    print(f"the site is in {WORK / 'site'}", flush=True)
    if given.serve:
        serve()


def build() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    for name, content in staged(ROOT).items():
        path = WORK / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    shutil.copy(ROOT / "docs" / "zensical.toml", WORK)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "zensical.toml"]
    done = subprocess.run(command, cwd=WORK, check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"docs: the site was not built: {done.stderr.strip().splitlines()[-1]}")
    for name, text in llms(ROOT).items():
        (WORK / "site" / name).write_text(text, encoding="utf-8")


def serve() -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=WORK / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/ - Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
