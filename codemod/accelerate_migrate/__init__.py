"""Migrate plain PyTorch training code to one device-independent API. Importing this package never imports torch."""

__version__ = "0.1.0"
