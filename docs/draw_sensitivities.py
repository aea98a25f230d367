"""Draw the figure in docs/sensitivities.md: `python docs/draw_sensitivities.py`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nestquad.plots import new_axes, save

PAGE = Path(__file__).resolve().parent / "sensitivities.md"
FIGURE = PAGE.parent / "figures" / "sensitivities.png"


def main() -> None:
    first = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[0]
    names: dict[str, Any] = {}
    exec(compile(first, str(PAGE), "exec"), names)
    figure, (ax,) = new_axes(6.4, 3.0)
    names["s"].plot(ax)
    print(f"wrote {save(figure, FIGURE)}")


if __name__ == "__main__":
    main()
