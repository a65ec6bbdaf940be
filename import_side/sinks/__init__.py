"""Where verified images go: one file per kind of target."""
