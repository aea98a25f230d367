"""Value of information as a local web page: upload, slider, groups, study, report."""

from nestquad.voi.serve._app import application
from nestquad.voi.serve._server import serve

__all__ = ["application", "serve"]
