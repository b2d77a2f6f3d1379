"""Ahn, Cheng, Daneshmand & Sra (2023): every theorem, lemma and figure. arXiv:2306.00297."""

from innerloop.papers.ahn2023 import (
    lemma2,
    lemmas6_7,
    lemmas8_9_10,
    section5_2,
    theorem1,
    theorem3,
    theorem4,
    theorem5,
)
