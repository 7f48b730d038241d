"""LSP in, LSP out: everything between an editor and the engine. No tensor appears here."""
