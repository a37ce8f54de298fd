"""Algorithm 4: novel classes arrive one after another, each image once; W learns, theta is frozen."""

from kcciol.data.examples import Examples
from kcciol.evaluation.protocol import Evaluation, evaluate

__all__ = ["Evaluation", "Examples", "evaluate"]
