"""The suite seen from Python. Importing it gives this process, and those that it starts, a cache of their own.

Neither what earlier runs left nor the user's cache has a part in any test, and nothing is added to it: each run
compiles everything at least once.
"""

import atexit
import os
import shutil
import tempfile

_PREFIX = "overdrive-tests-"


def _remove(directory, process):
    # Forked children have inherited this.
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)


# Unless a process of the suite has started this one.
if not os.path.basename(os.environ.get("XDG_CACHE_HOME", "")).startswith(_PREFIX):
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix=_PREFIX)
    atexit.register(_remove, os.environ["XDG_CACHE_HOME"], os.getpid())
