"""Side-by-side measurements: a table for people, and one JSON document as the last line of stdout."""
