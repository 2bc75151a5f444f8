"""Prints one hash of the files that git tracks, or would, in the current directory.

Names, contents and whether a file can be executed count. Ignored files do not, nor do those that are
gone though git has not been told.

Usage: python scripts/fingerprint.py [PATH...]; paths restrict it.
"""

import hashlib
import os
import subprocess
import sys


def files(paths: list[str]) -> list[bytes]:
    """List their names, in a fixed order."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return sorted({name for name in listed.split(b"\0") if name})


def fingerprint(paths: list[str]) -> str:
    """Hash them; each part goes in behind its length, so that no two trees are the same bytes."""
    total = hashlib.sha256()
    for name in files(paths):
        if os.path.islink(name):
            parts = [name, b"link", os.readlink(name)]
        elif os.path.isfile(name):
            with open(name, "rb") as file:
                parts = [name, b"program" if os.access(name, os.X_OK) else b"file", file.read()]
        else:
            continue
        for part in parts:
            total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()


if __name__ == "__main__":
    print(fingerprint(sys.argv[1:]))
