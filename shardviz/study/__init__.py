"""Many reports: comparing them, searching among plans, contracts for tests."""
