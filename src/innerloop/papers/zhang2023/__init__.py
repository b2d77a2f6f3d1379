"""Zhang, Frei & Bartlett (2023): every theorem and lemma. arXiv:2306.09927."""
