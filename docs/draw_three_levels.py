"""Picture of a decision in three stages: the figure of the gallery script, as a file.

``python docs/draw_three_levels.py`` writes docs/figures/three-level-decision.png.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib as mpl

HERE = Path(__file__).resolve().parent


def draw(to: Path = HERE / "figures" / "three-level-decision.png") -> Path:
    """Run the script and save its figure."""
    mpl.use("agg")
    found = runpy.run_path(str(HERE / "gallery" / "three_stages.py"))
    found["figure"].savefig(to, dpi=110)
    return to


if __name__ == "__main__":
    print(f"wrote {draw().relative_to(HERE.parent)}")
