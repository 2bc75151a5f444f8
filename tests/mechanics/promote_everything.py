"""Null-promotes a whole process: what is loaded, and every module that is imported from now on."""

import gc
import importlib.machinery
import sys
import types

from overdrive import _core


def promote_loaded(leave=True, loops=False):
    """Swaps every function on the heap, those of the standard library included; returns how many."""
    own = {promote_loaded.__code__, promote_imports.__code__}
    count = 0
    for function in [o for o in gc.get_objects() if type(o) is types.FunctionType]:
        code = function.__code__
        if code in own or code.co_name.startswith("<leave"):
            continue
        promoted = _core._null_promote_code(code, leave, loops)
        if promoted is not code:
            function.__code__ = promoted
            count += 1
    return count


def promote_imports(leave=True, loops=False):
    """From now on, code that is loaded from a source or bytecode file is promoted."""
    loader = importlib.machinery.SourceFileLoader
    plain = loader.get_code

    def get_code(self, fullname):
        code = plain(self, fullname)
        return code if code is None else _core._null_promote_code(code, leave, loops)

    loader.get_code = get_code


def everything(leave=True, loops=False):
    """Both."""
    promote_imports(leave, loops)
    count = promote_loaded(leave, loops)
    print(f"null promotion: {count} functions", file=sys.stderr)
