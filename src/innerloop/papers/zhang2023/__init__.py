"""Zhang, Frei & Bartlett (2023): every theorem, lemma and figure. arXiv:2306.09927.

theorem4_2.py: footnote2, eq4.3, eq4.4, theorem4.2, appendixB
theorems4_1_4_5.py: theorem4.1, theorem4.1-any-scale, theorem4.5, theorem4.5-nondiagonal
corollary4_3.py: theorem4.2-linear, corollary4.3
section4_2_shifts.py: task-shift, query-shift, orthogonal-query, covariate-shift
eq4_13.py: eq4.13, eq4.13-limit
lemma5_1.py: lemma5.1, lemma5.1-eigenvalues
lemmas5_2_C1_C3.py: lemma5.2, lemmaA.1, lemmaC.1, corollaryC.2, lemmaC.3
lemmas5_3_C4.py: lemma5.3, corollaryA.2, lemmaC.4
lemmas5_4_C8.py: lemma5.4, lemma5.4-decay, lemmaC.8, lemmaC.8-decay
lemmasA3_A5_C5_C7.py: lemmaA.3, lemmaA.4, lemmaA.5, lemmaC.5, lemmaC.6, lemmaC.7
appendixD.py: lemmaD.1, lemmaD.2, lemmaD.3, lemmaD.4
figure1.py: random-covariance
figure1_gpt2.py: figure1, figure1-positions
figure1_d20.py: figure1-d20
theorems_drawn.py: error-lengths, gradient-flow
shifts_figure.py: shifts

`figure1_trainings.py` has the trainings behind Figure 1, `settings.py` the covariances and
tolerances, `prompts.py` every prompt of a small setting and the layer on them, `flows.py` the
starts of flows, `drawing.py` what the figures share.
"""

# ruff: noqa: F401, I001
# The report follows the order in which these are first imported.
from innerloop.papers.zhang2023 import lemma5_1, lemmas5_2_C1_C3, lemmas5_3_C4, lemmas5_4_C8
from innerloop.papers.zhang2023 import lemmasA3_A5_C5_C7, theorems4_1_4_5, theorem4_2, corollary4_3
from innerloop.papers.zhang2023 import section4_2_shifts, eq4_13, appendixD, figure1, figure1_gpt2
from innerloop.papers.zhang2023 import figure1_d20
from innerloop.papers.zhang2023 import theorems_drawn, shifts_figure
