"""Value of information from a model that can be run."""

from nestquad.voi.model._model import Model

__all__ = ["Model"]
