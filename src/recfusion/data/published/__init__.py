"""Published data sets: archives, downloads and their readers."""
