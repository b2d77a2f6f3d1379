"""Ahn, Cheng, Daneshmand & Sra (2023): every theorem, lemma and figure. arXiv:2306.00297."""

from innerloop.papers.ahn2023 import figures, further_figures, global_minimum, multi_layer

__all__ = ["figures", "further_figures", "global_minimum", "multi_layer"]
