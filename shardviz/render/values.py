"""How long a name may be in a table."""

MAX_NAME = 44
