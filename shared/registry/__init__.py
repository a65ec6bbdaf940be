"""Talking to OCI and Docker registries: transport, authorization, reading, pushing."""
