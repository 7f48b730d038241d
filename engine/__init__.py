"""Specter's engine: text in, text out; it knows no editor and no protocol."""
