"""Tasks: distributions over prompts."""

from innerloop.tasks.linear import LinearRegression
from innerloop.tasks.task import Task

__all__ = ["LinearRegression", "Task"]
