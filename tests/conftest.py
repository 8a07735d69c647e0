"""How Hypothesis runs: the same examples every time, and new ones on request (``make fuzz``)."""

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("fuzz", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("repeatable")
