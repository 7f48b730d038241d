"""The real server, driven as an editor drives it, and as no editor ever would."""
