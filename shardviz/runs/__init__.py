"""Whole scripts run dry: what they compile, move and keep, with nothing computed; and trees that change their mesh."""
