"""Wheels of other platforms: what they need of a machine, and the broker run from what runs here.

`make test-wheels` builds the wheels and then runs these tests. `make test` does so too, with a wheel for
each C library and each processor, and without the optimisations that take long.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import unquote

import pytest
from elftools.elf.elffile import ELFFile

from tests.conftest import skip
from tests.packaging.conftest import run
from tests.packaging.test_wheel import check_that_it_serves, install, metadata, names
from tests.servers import ROOT

pytestmark = [pytest.mark.process, pytest.mark.wheel, pytest.mark.timeout(1200)]

#: Licences of crates that users may get; `rust_core/deny.toml` has what is in them.
LICENCES = {
    "0BSD OR MIT OR Apache-2.0",
    "Apache-2.0",
    "Apache-2.0 OR MIT",
    "Apache-2.0 WITH LLVM-exception",
    "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
    "(MIT OR Apache-2.0) AND Unicode-3.0",
    "MIT",
    "MIT OR Apache-2.0",
    "MIT OR Zlib OR Apache-2.0",
    "Unlicense OR MIT",
    "Zlib",
}
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
ALL = ("manylinux-x86_64", "manylinux-aarch64", "musllinux-x86_64", "musllinux-aarch64")
#: The dynamic linker of Debian's musl, which is the C library itself.
MUSL = Path("/lib/ld-musl-x86_64.so.1")


@pytest.fixture(scope="module")
def folder() -> Path:
    """The folder of the wheels, with their sums."""
    return ROOT / os.environ["SUBJECTBUS_WHEELS"]


def wheels(folder: Path) -> dict[str, Path]:
    """Each wheel by its platform tag."""
    return {path.stem.rpartition("-")[2]: path for path in folder.glob("*.whl")}


def extension(wheel: Path) -> ELFFile:
    with zipfile.ZipFile(wheel) as archive:
        return ELFFile(io.BytesIO(archive.read("subjectbus/_core.abi3.so")))


def undefined(file: ELFFile) -> set[str]:
    """The names of the symbols that the file takes from others, weak ones aside."""
    symbols = file.get_section_by_name(".dynsym").iter_symbols()
    return {
        symbol.name
        for symbol in symbols
        if symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL" and symbol.name
    }


def needed(file: ELFFile) -> set[str]:
    """The libraries that the file is linked with."""
    tags = file.get_section_by_name(".dynamic").iter_tags()
    return {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}


def test_there_is_a_wheel_for_every_platform(folder: Path) -> None:
    built = os.environ.get("SUBJECTBUS_PLATFORMS", "").split() or ALL
    versions = {"manylinux": "2_28", "musllinux": "1_2"}
    parts = [name.split("-") for name in built]
    assert set(wheels(folder)) == {f"{kind}_{versions[kind]}_{machine}" for kind, machine in parts}
    for wheel in wheels(folder).values():
        assert wheel.name.startswith(f"subjectbus-{metadata(wheel)['Version']}-cp311-abi3-")


def test_the_checksums_match_the_files(folder: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) == len(list(folder.iterdir())) - 1


def test_each_extension_needs_no_more_than_its_platform_tag_allows(folder: Path) -> None:
    """By auditwheel, which knows the versions of symbols that each tag allows.

    Auditwheel takes glibc's `libc.so` for musl's where both are, so musl's symbols have a test of their own.
    """
    for tag, wheel in wheels(folder).items():
        file = extension(wheel)
        assert file["e_machine"] == MACHINES[tag.split("_", 3)[3]]
        if tag.startswith("musllinux"):
            assert needed(file) == {"libc.so"}
            continue
        shown = run(sys.executable, "-m", "auditwheel", "show", wheel, cwd=folder)
        assert f'platform tag: "{tag}"' in " ".join(shown.split()), shown
        assert "libc.so.6" in needed(file)


def test_musl_has_every_symbol_that_the_extension_needs(folder: Path) -> None:
    """The rest is the stable interface of Python."""
    if not MUSL.exists():
        skip("musl is not installed (Debian: apt-get install musl)")
    with MUSL.open("rb") as library:
        symbols = ELFFile(library).get_section_by_name(".dynsym").iter_symbols()
        provided = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
    for tag, wheel in wheels(folder).items():
        # The library's symbols are those of every processor.
        if tag.startswith("musllinux"):
            missing = undefined(extension(wheel)) - provided
            assert "PyModuleDef_Init" in missing
            assert {name for name in missing if not name.startswith(("Py", "_Py"))} == set(), tag


def test_the_bill_of_materials_names_the_crates_without_paths(folder: Path) -> None:
    """CycloneDX, in the wheel (PEP 770)."""
    for wheel in wheels(folder).values():
        (name,) = (name for name in names(wheel) if ".dist-info/sboms/" in name)
        with zipfile.ZipFile(wheel) as archive:
            text = archive.read(name).decode()
        bill = json.loads(text)
        assert bill["bomFormat"] == "CycloneDX"
        crates = {component["name"]: component for component in bill["components"]}
        assert {"pyo3", "io-uring", "rustix", "subjectbus-broker"} <= set(crates)
        assert str(ROOT) not in text
        for name, crate in crates.items():
            expressions = [licence["expression"] for licence in crate["licenses"]]
            assert set(expressions) <= LICENCES, name
            if not name.startswith("subjectbus-"):
                assert re.fullmatch(r"pkg:cargo/[\w-]+@[\w.+-]+", unquote(crate["purl"])), (
                    "not of the registry"
                )
                assert [entry["alg"] for entry in crate["hashes"]] == ["SHA-256"], name


def test_the_extension_contains_no_paths(folder: Path) -> None:
    for wheel in wheels(folder).values():
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read("subjectbus/_core.abi3.so")
        assert str(ROOT).encode() not in content


def test_the_wheel_for_this_machine_serves(folder: Path, tmp_path: Path) -> None:
    wheel = wheels(folder).get(f"manylinux_2_28_{platform.machine()}")
    if wheel is None:
        skip("it was not built: name this machine's platform, too")
    check_that_it_serves(install(wheel, "", tmp_path / "venv"), tmp_path)


def test_the_source_archive_builds_installs_and_serves(folder: Path, tmp_path: Path) -> None:
    """From the archive alone, and not from the tree that it was made of."""
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    source = tmp_path / archive.name.removesuffix(".tar.gz")
    assert (source / "rust_core" / "Cargo.lock").is_file()
    built = tmp_path / "built"
    # The profile of the Rust tests, so that nearly all crates are there already.
    options = ("--locked", "--profile", "dev", "--compatibility", "linux", "--out", built)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CARGO_TARGET_DIR", str(ROOT / "rust_core" / "target"))
        run("maturin", "build", *options, cwd=source)
    (wheel,) = built.glob("*.whl")
    check_that_it_serves(install(wheel, "", tmp_path / "venv"), tmp_path)
