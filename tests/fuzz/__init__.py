"""Mutates every file that fieldwise reads, and checks that each is used or refused with a clear line."""
