"""Each Rust file states its contract and stays short; links in documents lead somewhere."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 800
REASON_TO_BE_LONG = "Longer than 800 lines because"


@cache
def tracked(suffix: str) -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", f"*{suffix}"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()]


def header(path: Path) -> str:
    lines = path.read_text().splitlines()
    prefix = "//!" if path.suffix == ".rs" else ""
    return "\n".join(line for line in lines[:40] if line.startswith(prefix))


def test_there_is_something_to_check():
    assert tracked(".rs") and tracked(".py") and tracked(".md")


def test_every_rust_file_begins_with_its_contract():
    without = [path.relative_to(ROOT) for path in tracked(".rs") if not path.read_text().startswith("//!")]
    assert not without, f"no //! header: {', '.join(map(str, without))}"


def test_long_files_give_their_reason():
    surplus = [
        f"{path.relative_to(ROOT)} ({n_lines})"
        for path in tracked(".rs") + tracked(".py")
        if (n_lines := path.read_text().count("\n")) > LONGEST and REASON_TO_BE_LONG not in header(path)
    ]
    assert not surplus, f"split by idea, or say why not ('{REASON_TO_BE_LONG} …'): {', '.join(surplus)}"


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub spells them."""
    headings = re.findall(r"^#+ +(.*)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", tracked(".md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue  # of other sites; the check must work without a network
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), f"{document.relative_to(ROOT)}: nothing at {target}"
        if anchor:
            assert anchor in anchors(file), f"{document.relative_to(ROOT)}: no heading for {target}"


def test_every_decision_is_listed():
    index = (ROOT / "docs/adr/README.md").read_text()
    missing = [page.name for page in (ROOT / "docs/adr").glob("[0-9]*.md") if page.name not in index]
    assert not missing


# The desktop's convention for all programs, not a switch of ours.
WHERE_CACHES_ARE = {'"XDG_CACHE_HOME"', '"HOME"'}


def test_no_environment_variable_but_overdrive_steers_the_engine():
    for path in tracked(".rs"):
        if "src" in path.relative_to(ROOT).parts:
            for argument in re.findall(r"\benv::var(?:_os)?\(([^)]*)\)", path.read_text()):
                allowed = WHERE_CACHES_ARE if path.name == "cache.rs" else {'"OVERDRIVE"'}
                assert argument in allowed, f"{path.relative_to(ROOT)} reads {argument}"
