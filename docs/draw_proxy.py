"""Draw the figure in docs/validate-a-proxy.md from its example: `python docs/draw_proxy.py`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nestquad.plots import new_axes, save

PAGE = Path(__file__).resolve().parent / "validate-a-proxy.md"
FIGURE = PAGE.parent / "figures" / "proxy.png"


def main() -> None:
    first = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[0]
    names: dict[str, Any] = {}
    exec(compile(first, str(PAGE), "exec"), names)
    figure, axes = new_axes(9.0, 3.8, columns=2)
    names["check"].plot(axes)
    print(f"wrote {save(figure, FIGURE)}")


if __name__ == "__main__":
    main()
