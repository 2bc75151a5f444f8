"""What a program can see of a null-promoted function: (versions, part of the test's name, reason)."""

ALL = ("3.11", "3.12", "3.13")
BYTECODE = "looks at the bytecode of a function, in front of which the stub's prologue stands"
CONSTANTS = "looks at a function's constants, the last of which is the stub's native object"

EXPECTED = [
    (ALL, "test.test_dis.", BYTECODE),
    (
        ALL,
        "test_weird_attribute_position_regressions",
        "wants a position for every instruction; the prologue has none",
    ),
    (ALL, "test_return_in_with_positions", "counts RETURN_VALUE instructions; the prologue has two"),
    (ALL, "test_jump_threading", "wants a position for every jump; the prologue's has none"),
    (ALL, "test_consts_in_conditionals", BYTECODE),
    (ALL, "test_dead_blocks_do_not_generate_bytecode", BYTECODE),
    (ALL, "test_false_while_loop", BYTECODE),
    (ALL, "test_lineno_after_no_code", BYTECODE),
    (ALL, "test_32_63_bit_values", CONSTANTS),
    (ALL, "test_merge_constants", CONSTANTS),
    (ALL, "test_remove_unused_consts", CONSTANTS),
    (ALL, "test_strip_unused_", CONSTANTS),
    (ALL, "test_merge_code_attrs", "wants equal tables of two functions to be one object"),
]
