"""Saves models to folders, loads them again and exports them; needs no training code."""
