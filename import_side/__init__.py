"""The isolated side: medium -> verify -> deliver."""
