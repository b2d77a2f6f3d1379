"""Gao et al. (2024), AlgoFormer: what a looped transformer can express.

In the paper's order, lemmas with the theorem that they prove:

theorem3_1.py: lemmaA.1, lemmaA.2, theorem3.1, theorem3.1-ridge
theorems3_2_3_3.py: lemmaA.3, theorem3.2, theorem3.3
theorem4_1.py: eq4, lemmaA.4, theorem4.1
theorem4_2.py: lemmaA.5, theorem4.2, theorem4.2-newton
section2_2.py: section2.2, section2.2-parameters
accuracy.py: accuracy
trained/figure2.py: figure2a, figure2a-d20, figure2b, figure2c
trained/same_layers.py: same-layers
trained/figure3.py: figure3
trained/figure4.py: figure4, figure4-loop
trained/figure5.py: figure5
trained/siblings.py: siblings
table1.py: table1

`trainings.py` and `table1_trainings.py` list the trainings behind figures and table. `settings.py`
has what the claims share.
"""

# isort: off
# The report follows the order in which these are first imported.
from innerloop.papers.algoformer2024 import section2_2  # noqa: F401
from innerloop.papers.algoformer2024 import theorem3_1  # noqa: F401
from innerloop.papers.algoformer2024 import theorems3_2_3_3  # noqa: F401
from innerloop.papers.algoformer2024 import theorem4_1  # noqa: F401
from innerloop.papers.algoformer2024 import theorem4_2  # noqa: F401
from innerloop.papers.algoformer2024 import accuracy  # noqa: F401
from innerloop.papers.algoformer2024 import trainings  # noqa: F401
from innerloop.papers.algoformer2024.trained import figure2, same_layers  # noqa: F401
from innerloop.papers.algoformer2024.trained import figure3, figure4, figure5  # noqa: F401
from innerloop.papers.algoformer2024.trained import siblings  # noqa: F401
from innerloop.papers.algoformer2024 import table1  # noqa: F401
# isort: on
