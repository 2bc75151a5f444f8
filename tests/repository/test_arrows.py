"""The table of allowed arrows in docs/architecture.md, compared with what cargo says of the crates."""

import json
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTHING = "–"


@dataclass(frozen=True)
class Row:
    """One crate's row: what it may use, whether it forbids unsafe, which third-party crates are its alone."""

    may_use: frozenset[str]
    unsafe_forbidden: bool
    alone_may_use: frozenset[str]


def names(cell: str) -> frozenset[str]:
    return frozenset() if cell == NOTHING else frozenset(name.strip() for name in cell.split(","))


@cache
def table() -> dict[str, Row]:
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split("\n## Allowed arrows\n")[1].split("\n## ")[0]
    rows = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| overdrive-"):
            crate, may_use, unsafe, alone = cells
            assert unsafe in ("forbidden", "named modules"), (
                f"{crate}: unknown word in column unsafe: {unsafe}"
            )
            rows[crate] = Row(names(may_use), unsafe == "forbidden", names(alone))
    return rows


@cache
def packages() -> dict[str, dict]:
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return {package["name"]: package for package in json.loads(answer.stdout)["packages"]}


def dependencies(crate: str) -> set[str]:
    return {dependency["name"] for dependency in packages()[crate]["dependencies"]}


def directory(crate: str) -> Path:
    return Path(packages()[crate]["manifest_path"]).parent


def test_the_table_lists_the_members_and_no_others():
    assert set(table()) == set(packages())


def test_members_stand_in_the_order_of_the_table():
    manifest = (ROOT / "Cargo.toml").read_text()
    members = re.findall(r'"([^"]+)"', manifest.split("members = [")[1].split("]")[0])
    assert [ROOT / member for member in members] == [directory(crate) for crate in table()]


@pytest.mark.parametrize("crate", table())
def test_a_crate_uses_only_what_its_row_allows(crate):
    used = dependencies(crate) & set(packages())
    surplus = used - table()[crate].may_use
    assert not surplus, f"{crate} must not use {sorted(surplus)}: see docs/architecture.md"


@pytest.mark.parametrize("crate", table())
def test_third_party_crates_stay_in_the_row_that_owns_them(crate):
    owned_elsewhere = frozenset().union(
        *(row.alone_may_use for name, row in table().items() if name != crate)
    )
    taken = dependencies(crate) & owned_elsewhere
    assert not taken, f"{crate} must not use {sorted(taken)}: see docs/architecture.md"


@pytest.mark.parametrize("crate", table())
def test_unsafe_is_forbidden_or_opened_module_by_module(crate):
    library = next(target for target in packages()[crate]["targets"] if "custom-build" not in target["kind"])
    forbidden = re.search(
        r"^#!\[forbid\(.*\bunsafe_code\b.*\)\]", Path(library["src_path"]).read_text(), re.M
    )
    assert bool(forbidden) == table()[crate].unsafe_forbidden
    lints = re.search(r"^\[lints\]\nworkspace = true", (directory(crate) / "Cargo.toml").read_text(), re.M)
    assert lints, f"{crate} must take the lints of the workspace, which deny unsafe code"


@pytest.mark.parametrize("crate", table())
def test_no_file_allows_unsafe_without_expecting_it(crate):
    for path in directory(crate).rglob("*.rs"):
        assert not re.search(r"allow\([^)]*\bunsafe_code\b", path.read_text()), (
            f"{path}: expect it, with a reason"
        )
