"""Writes partbox.cdx.json, the list of what the wheel requires (CycloneDX), which travels in the wheel (PEP 770)."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

requirements = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "--pyproject", "pyproject.toml"]
options = ["--mc-type", "library", "--output-reproducible", "--output-file", "partbox.cdx.json", "-"]
made = subprocess.run(
    [*command, *options], input="\n".join(requirements), capture_output=True, text=True, check=False, cwd=ROOT
)
if made.returncode:
    sys.exit(f"sbom: partbox.cdx.json cannot be written: {made.stderr.strip()}")
