"""Models to folders and back; needs no training code."""
