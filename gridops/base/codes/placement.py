"""Codes of this family."""

