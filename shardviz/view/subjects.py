"""Every subject that can be told: importing this registers their builders with `document`."""

from shardviz.view.document import Document, document

__all__ = ["Document", "document"]
