"""Zhang, Frei & Bartlett (2023): every theorem and lemma. arXiv:2306.09927."""

from innerloop.papers.zhang2023 import prediction, prompt_lengths, random_covariance_limit

__all__ = ["prediction", "prompt_lengths", "random_covariance_limit"]
