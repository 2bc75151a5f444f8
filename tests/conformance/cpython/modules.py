"""Which modules of CPython's tests are run, and which files of its library each of them is about.

In: the directory of a standard library. Out: names and patterns. Names differ between versions: what one has not is
left out.
"""

import fnmatch

# Patterns, cheap modules first within a group.
MODULES = """
test_int test_long test_float test_complex test_bool test_str test_str[a-z]* test_unicode test_unicode_* test_bytes
test_list test_tuple test_dict test_set test_range test_slice test_enumerate test_zip* test_augassign test_compare
test_unpack test_unpack_ex test_fstring test_patma test_dictcomps test_listcomps test_lambda* test_raise test_contains
test_operator test_math test_math_* test_statistics test_heapq test_bisect test_json test_re
""".split()

# Beside CPython's folder of tests itself, which holds what several modules share.
SUBJECTS = {
    "test_bisect": ["bisect.py"],
    "test_complex": ["numbers.py"],
    "test_enumerate": ["_collections_abc.py"],
    "test_float": ["fractions.py", "numbers.py"],
    "test_fstring": ["decimal.py", "_pydecimal.py"],
    "test_heapq": ["heapq.py"],
    "test_json": ["json/*"],
    "test_long": ["fractions.py", "numbers.py"],
    "test_math": ["fractions.py", "numbers.py"],
    "test_operator": ["operator.py"],
    "test_re": ["re/*", "copyreg.py"],
    "test_set": ["_collections_abc.py", "_weakrefset.py"],
    "test_statistics": ["statistics.py", "fractions.py", "numbers.py", "random.py"],
    "test_string": ["string.py", "string/*"],
    "test_string_literals": ["codecs.py"],
    "test_stringprep": ["stringprep.py"],
    "test_strptime": ["_strptime.py", "calendar.py", "datetime.py", "_pydatetime.py"],
    "test_struct": ["struct.py"],
    "test_zipapp": ["zipapp.py"],
    "test_zipfile": ["zipfile.py", "zipfile/*"],
}


def modules_of(library):
    """The modules of the list that the library in this directory has."""
    present = sorted(path.stem for path in (library / "test").iterdir() if path.name.startswith("test_"))
    found = []
    for pattern in MODULES:
        found += [name for name in present if fnmatch.fnmatchcase(name, pattern) and name not in found]
    return found


def subjects_of(module):
    """Patterns of the library's files that the module's tests are about, relative to the library."""
    return SUBJECTS.get(module, [])
