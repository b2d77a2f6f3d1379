"""The report: verdicts, figures and corrections as one page that needs nothing but a browser."""

from innerloop.report.mathml import FormulaError, to_mathml
from innerloop.report.page import write_report

__all__ = ["FormulaError", "to_mathml", "write_report"]
