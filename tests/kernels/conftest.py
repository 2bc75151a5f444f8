"""Libraries of kernels, compiled once by each worker process."""

import pathlib
import shutil
import subprocess
import tempfile

import pytest
from overdrive import kernel

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield pathlib.Path(path)


@pytest.fixture(scope="session")
def compile_c(folder):
    """Compiles kernels.c as a C compiler that complains of everything does, and gives the path."""

    def compile_(name, *options, standard="c11"):
        path = folder / f"{name}.so"
        if not path.exists():
            warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
            command = [
                "cc",
                f"-std={standard}",
                "-D_POSIX_C_SOURCE=199309L",
                *warnings,
                "-O1",
                "-shared",
                "-fPIC",
            ]
            include = ["-I", kernel.get_include()]
            subprocess.run([*command, *include, *options, HERE / "kernels.c", "-o", path], check=True)
        return path

    return compile_


@pytest.fixture(scope="session")
def lib(compile_c):
    return kernel.load_library(compile_c("kernels"))


@pytest.fixture(scope="session")
def rust_lib(folder):
    rustc = shutil.which("rustc")
    assert rustc, "rustup is among what the README asks for"
    abi, path = folder / "liboverdrive_abi.rlib", folder / "librust.so"
    common = [rustc, "--edition", "2024", "-O"]
    crate = ROOT / "crates/runtime/abi/src/lib.rs"
    name = ["--crate-name", "overdrive_abi", "--crate-type", "rlib"]
    subprocess.run([*common, *name, crate, "-o", abi], check=True)
    kind = ["--crate-type", "cdylib", "--extern", f"overdrive_abi={abi}"]
    subprocess.run([*common, *kind, HERE / "kernels.rs", "-o", path], check=True)
    return kernel.load_library(path)
