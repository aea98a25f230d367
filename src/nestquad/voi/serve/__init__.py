"""Value of information as a local web page: upload, slider, groups, study, report."""

from nestquad.voi.serve._app import application, serve

__all__ = ["application", "serve"]
