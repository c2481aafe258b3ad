"""Formatting of reports: pages, tables and numbers."""
