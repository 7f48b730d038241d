"""What each rule of context and shape is worth: holes in real code, completed with the rule and without it.

Takes the server's own path from a document to the text it would show.
"""
