"""Test doubles that misbehave on request, and starters for real services."""
