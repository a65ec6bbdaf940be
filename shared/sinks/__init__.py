"""Places that images are delivered to, and that both sides deliver to."""
