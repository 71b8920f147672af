"""The command line: one small module per command; nothing heavy is imported before a command runs."""
