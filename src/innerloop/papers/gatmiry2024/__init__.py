"""Gatmiry, Saunshi, Reddi, Jegelka & Kumar (2024), arXiv:2410.08292: every statement, by module.

section3.py: section3.2, proposition3.1
theorem3_2.py: theorem3.2, theoremA.8, theorem3.2-rate
minimum.py: global-min, asymmetric
theorem3_3.py: theorem3.3, theoremA.12
convexity.py: convexity, convex-ray
theorem3_4.py: theorem3.4, theoremA.11, lemmaA.10
lemma4_1.py: theoremA.1, lemmaA.3, corollaryA.4, lemma4.1, lemmaA.6
lemma4_2.py: lemma4.2, lemmaA.5, lemma4.3, lemmaA.7, lemmaA.2
theorem4_4.py: theorem4.4, lemmaA.9
theorem4_5.py: theorem4.5, theoremA.13
figure1.py: figure1
figure2.py: figure2
figure3.py: figure3
figure4.py: figure4
loops_on_the_ray.py: optimal-steps, expanding
equations16_19.py: equations16-19, cycle-counts
equation26.py: equation26
"""

# ruff: noqa: F401, I001
# The report follows this order: what the model computes, its loss, the minimum, the way to it.
from innerloop.papers.gatmiry2024 import section3, lemma4_1, equations16_19, lemma4_2, equation26
from innerloop.papers.gatmiry2024 import minimum, theorem3_2, theorem4_4
from innerloop.papers.gatmiry2024 import convexity, theorem3_4, theorem3_3, theorem4_5
from innerloop.papers.gatmiry2024 import loops_on_the_ray, figure1, figure2, figure3, figure4
