"""Claims and figures measured, by several processes, and kept on disk until their code changes."""

from innerloop.reproduction.parallel import measure_all
from innerloop.reproduction.reproduce import Result, all_found, found, reproduce

__all__ = ["Result", "all_found", "found", "measure_all", "reproduce"]
