"""Figures in one visual style; matplotlib is loaded only when one is drawn.

Functions that draw return the axes. Results are read through their attributes, so that this folder
imports none of them.
"""

from nestquad.plots._comparison import plot_comparison as plot_comparison
from nestquad.plots._estimate import plot_conditional as plot_conditional
from nestquad.plots._estimate import plot_estimate as plot_estimate
from nestquad.plots._estimate import plot_proxy as plot_proxy
from nestquad.plots._estimate import plot_proxy_errors as plot_proxy_errors
from nestquad.plots._estimate import plot_trace as plot_trace
from nestquad.plots._style import AVERAGE as AVERAGE
from nestquad.plots._style import INK as INK
from nestquad.plots._style import SOFT as SOFT
from nestquad.plots._style import TEXT_SIZE as TEXT_SIZE
from nestquad.plots._style import End as End
from nestquad.plots._style import MethodStyle as MethodStyle
from nestquad.plots._style import answer_text as answer_text
from nestquad.plots._style import axes_or_new as axes_or_new
from nestquad.plots._style import count_axis as count_axis
from nestquad.plots._style import label_ends as label_ends
from nestquad.plots._style import method_styles as method_styles
from nestquad.plots._style import new_axes as new_axes
from nestquad.plots._style import plus_minus as plus_minus
from nestquad.plots._style import save as save
from nestquad.plots._style import series_styles as series_styles
from nestquad.plots._style import short as short
from nestquad.plots._style import style as style
from nestquad.plots._style import title as title
from nestquad.plots._style import to_png as to_png
from nestquad.plots._style import to_svg as to_svg
