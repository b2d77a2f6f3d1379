"""Ahn, Cheng, Daneshmand & Sra (2023): every theorem, lemma and figure. arXiv:2306.00297."""

from innerloop.papers.ahn2023 import comparisons, figures, multi_layer, single_layer

__all__ = ["comparisons", "figures", "multi_layer", "single_layer"]
