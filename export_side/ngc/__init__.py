"""NVIDIA's catalogue (NGC) as a source of image names, and filters for any registry's tags."""
