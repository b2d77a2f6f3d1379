"""Claims and figures measured, by several processes, and kept on disk until their code changes."""

from innerloop.reproduction.inside import Inside, inside_all
from innerloop.reproduction.parallel import measure_all
from innerloop.reproduction.reproduce import Result, all_found, found, reproduce

__all__ = ["Inside", "Result", "all_found", "found", "inside_all", "measure_all", "reproduce"]
