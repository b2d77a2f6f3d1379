"""Theory: closed forms and exact expectations, as pure functions in float64.

Read as `theory.linear.looped_optimum`: one group for each part of the mathematics.
"""

from innerloop.theory import flow, linear, softmax, wishart

__all__ = ["flow", "linear", "softmax", "wishart"]
