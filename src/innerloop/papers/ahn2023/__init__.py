"""Ahn, Cheng, Daneshmand & Sra (2023): every theorem, lemma and figure. arXiv:2306.00297.

In the paper's order:

theorem1.py: eq7, theorem1, theorem1-d1
lemma2.py: lemma2
theorem3.py: theorem3, theorem3-scalar
section5_2.py: section5.2-view, section5.2-hessian
theorem4.py: theorem4, theorem4-direction, eq26
figures1_2.py: figure1, figure2
theorem5.py: theorem5, theorem5-direction, theorem5-gd++
figures3_4.py: figure3, figure4, section6.1-trend
authors_code.py: layers, context-length
lemmas6_7.py: lemma6, lemma7, lemma7-unique
lemmas8_9_10.py: lemma8, lemma9, lemma10
"""

from innerloop.papers.ahn2023 import (
    authors_code,
    figures1_2,
    figures3_4,
    lemma2,
    lemmas6_7,
    lemmas8_9_10,
    section5_2,
    theorem1,
    theorem3,
    theorem4,
    theorem5,
)

__all__ = [
    "authors_code",
    "figures1_2",
    "figures3_4",
    "lemma2",
    "lemmas6_7",
    "lemmas8_9_10",
    "section5_2",
    "theorem1",
    "theorem3",
    "theorem4",
    "theorem5",
]
