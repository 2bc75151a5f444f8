"""Tests that see whether they are promoted, fail at random, or end the process: what `test_cpython.py` has compared."""

import sys
import unittest


def is_promoted():
    code = sys._getframe(1).f_code
    return any(type(constant).__name__ == "Native" for constant in code.co_consts)


class Sees(unittest.TestCase):
    def test_same(self):
        self.assertEqual(sum(range(10)), 45)

    def test_other(self):
        self.assertFalse(is_promoted())

    def test_in_subtests(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertFalse(number == 1 and is_promoted())


class Dies(unittest.TestCase):
    def test_death(self):
        if is_promoted():
            import os

            os.abort()


class Hangs(unittest.TestCase):
    def test_hang(self):
        while is_promoted():
            pass
