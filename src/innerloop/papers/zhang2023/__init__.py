"""Zhang, Frei & Bartlett (2023): every theorem and lemma. arXiv:2306.09927."""

from innerloop.papers.zhang2023 import shifts

__all__ = ["shifts"]
