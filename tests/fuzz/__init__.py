"""Mutates every file that fieldwise reads, and checks that each is accepted or refused with a clear message."""
