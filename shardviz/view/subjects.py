"""Every subject that can be told: importing this registers their builders with `document`."""

from shardviz.view import cost_table, report, step_cost
from shardviz.view.document import Document, document

__all__ = ["Document", "cost_table", "document", "report", "step_cost"]
