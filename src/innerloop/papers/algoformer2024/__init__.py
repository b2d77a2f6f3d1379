"""Gao et al. (2024), AlgoFormer. arXiv:2402.13572.

`trainings.py` lists the trainings behind Figures 2 to 5. Their figures stand in `trained/`; each is
registered by importing its module here, once its records are there.
"""

from innerloop.papers.algoformer2024 import trainings  # noqa: F401
