"""What every other room may use: errors, files written atomically, random generators, memory."""
