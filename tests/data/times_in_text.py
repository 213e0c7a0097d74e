"""Texts that are times, each with its form and value, and texts that are none."""

from datetime import datetime

MORNING = datetime(2024, 4, 24, 9, 59)
TEXTS: dict[str, tuple[str, datetime]] = {
    "2024-04-24": ("year-first", datetime(2024, 4, 24)),
    "2024/4/24": ("year-first", datetime(2024, 4, 24)),
    "2024-04-24 9:59": ("year-first", MORNING),
    " 2024-04-24T09:59:00 ": ("year-first", MORNING),
    "2024-04-24T09": ("year-first", datetime(2024, 4, 24, 9)),
    "2024-04-24T09:59:07.1234567Z": ("year-first", datetime(2024, 4, 24, 9, 59, 7, 123456)),
    "2024-04-24 09:59:07,5": ("year-first", datetime(2024, 4, 24, 9, 59, 7, 500000)),
    "2024-04-24 09:59:00+02:00": ("year-first", datetime(2024, 4, 24, 7, 59)),
    "2024-04-24 09:59-0230": ("year-first", datetime(2024, 4, 24, 12, 29)),
    "2024-04-24 09:59:00+05": ("year-first", datetime(2024, 4, 24, 4, 59)),
    "0001-01-01": ("year-first", datetime(1, 1, 1)),
    "1969-12-31 23:59:59.9": ("year-first", datetime(1969, 12, 31, 23, 59, 59, 900000)),
    "24/04/2024 9:59": ("day-first", MORNING),
    "24.4.2024": ("day-first", datetime(2024, 4, 24)),
    "24.04.24 09:59": ("day-first", MORNING),
    "24-Apr-2024 09:59": ("day-first", MORNING),
    "24/Apr/2024:09:59:00 +0200": ("day-first", datetime(2024, 4, 24, 7, 59)),
    "Wed, 24 Apr 2024 09:59:00 GMT": ("day-first", MORNING),
    "24/04/99": ("day-first", datetime(1999, 4, 24)),
    "04/24/2024": ("month-first", datetime(2024, 4, 24)),
    "4/24/2024 9:59:00 PM": ("month-first", datetime(2024, 4, 24, 21, 59)),
    "04/24/2024 12:05 am": ("month-first", datetime(2024, 4, 24, 0, 5)),
    "April 24, 2024 9:59": ("month-first", MORNING),
    "20240424": ("compact", datetime(2024, 4, 24)),
    "20240424T0959": ("compact", MORNING),
    "20240424095900": ("compact", MORNING),
    "1713952740": ("seconds", MORNING),
    "956703932.25": ("seconds", datetime(2000, 4, 25, 23, 5, 32, 250000)),
    "1713952740000": ("milliseconds", MORNING),
    "1713952740000000": ("microseconds", MORNING),
}
NOT_TIMES = [
    "", "x", "1", "2024", "2024-02-30", "2023-02-29", "1900-02-29", "2024-13-01", "2024-00-01", "2024-06-31",
    "2024-06-01 24:00", "2024-06-01 12:60", "2024-06-01 12:00:60", "2024-06-01 13:00 PM", "0000-01-01", "31/02/2024",
    "2024-06-01 13:00+24:00", "2024-06-01 13:00x", "2024-06-01\n", "14102100", "24/Foo/2024", "17139527400",
    "٢٠٢٤-٠٤-٢٤",
]  # fmt: skip
