"""The explorer's state (`snapshot`), its edits (`edits`) and their effects (`apply`)."""
