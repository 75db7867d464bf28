"""What an Accelerator offers, by subject; `accelerator.py` puts the parts together."""
