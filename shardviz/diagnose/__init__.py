"""Findings about a report: one function per rule, one file per theme."""

from shardviz.diagnose.findings import RULES, findings
