"""Yang, Huang, Liang & Chi (2024), arXiv:2408.10147, in the order of the paper.

section2_proposition1.py: eq8, proposition1, unit-tokens
theorem1.py: theorem1, eq49, theorem1-path
section3_1_rates.py: rate-heads, rate-tokens
theorem2.py: theorem2, eq68-69
sections3_2_3.py: ybest, underfit, eq26, one-head
figures2a_4.py: figure2a, figure4
figures2b_5.py: figure2b, figure5
figure3.py: figure3
lemmas1_to_6.py: lemma1, lemma2, lemma3, lemma4, lemma5, lemma6
lemmas7_to_10.py: lemma7, lemma8, lemma9, eq62, lemma10, eq17

Beside them: settings.py (sizes, the paper's loss, instances with its symbols) and
encoder_training.py (how four layers are trained and timed).
"""

# isort: off
# The report follows this order: lemmas before the theorems that rest on them.
from innerloop.papers.yang2024 import (
    section2_proposition1 as section2_proposition1,
    lemmas1_to_6 as lemmas1_to_6,
    lemmas7_to_10 as lemmas7_to_10,
    theorem1 as theorem1,
    section3_1_rates as section3_1_rates,
    theorem2 as theorem2,
    sections3_2_3 as sections3_2_3,
    figures2a_4 as figures2a_4,
    figures2b_5 as figures2b_5,
    figure3 as figure3,
)
