"""innerloop: a laboratory for in-context learning.

tasks      distributions over prompts
algorithms learners with nothing trained
models     learners with trained weights
theory     closed forms and exact expectations
training   objectives, the training loop, L-BFGS
analysis   measuring and comparing learners
papers     every theorem and figure, with a measured verdict
"""

from innerloop.prompt import Prompt, TokenSequence

__all__ = ["Prompt", "TokenSequence"]
