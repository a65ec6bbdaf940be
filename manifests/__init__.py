"""The bundle format: its documents, their layout and the order in which they are checked."""
