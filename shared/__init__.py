"""What both sides need: value types, errors, registries, engines, signatures, files."""
