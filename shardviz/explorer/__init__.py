"""The explorer's state: what is known (`Snapshot`), what may be asked (`Edit`), and what becomes of it (`apply`)."""
