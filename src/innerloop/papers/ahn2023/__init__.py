"""Ahn, Cheng, Daneshmand & Sra (2023): every theorem, lemma and figure. arXiv:2306.00297.

In the paper's order, lemmas with the theorem that they prove:

theorem1.py: eq7, theorem1, theorem1-d1, lemma6, lemma7, lemma7-unique
section5.py: lemma2, theorem3, theorem3-scalar, section5.2-view, section5.2-hessian
theorem4.py: theorem4, theorem4-direction, eq26, lemma8
figures1_2.py: figure1, figure2
theorem5.py: theorem5, theorem5-direction, theorem5-gd++, lemma9, lemma10
figures3_4.py: figure3, figure4, section6.1-trend
authors_code.py: layers, context-length
"""

# isort: off
# The report follows the order in which these are first imported.
from innerloop.papers.ahn2023 import theorem1, section5, theorem4, figures1_2  # noqa: F401
from innerloop.papers.ahn2023 import theorem5, figures3_4, authors_code  # noqa: F401
# isort: on
