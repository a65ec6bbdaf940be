"""The internet-connected side: registry -> plan -> fill -> seal -> medium."""
