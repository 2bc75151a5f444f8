"""What a program can see of a null-promoted function: (versions, part of the test's name, reason)."""

EXPECTED = []
