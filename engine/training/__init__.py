"""Training of drafters for one target on a folder of source: multi-token heads, an EAGLE head, a distilled draft."""
