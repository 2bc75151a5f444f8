"""Explanations and reports as pictures: HTML by hand, one file each, nothing loaded from anywhere.

In: the data of `overdrive.explanation` and `overdrive.report`. Out: text. Nothing here asks the engine.
"""
