"""Build the wheels of all platforms, the source archive, and their checksums.

`make wheels` runs this program; `--help` lists what can be chosen.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLATFORMS = {
    "manylinux-x86_64": ("x86_64-unknown-linux-gnu", "manylinux_2_28"),
    "manylinux-aarch64": ("aarch64-unknown-linux-gnu", "manylinux_2_28"),
    "musllinux-x86_64": ("x86_64-unknown-linux-musl", "musllinux_1_2"),
    "musllinux-aarch64": ("aarch64-unknown-linux-musl", "musllinux_1_2"),
}
"""Rust's target and the oldest compatible platform tag of each platform."""
SUMS = "SHA256SUMS"


def build_wheel(platform: str, profile: str, folder: Path) -> Path:
    """Build the wheel of a platform into the folder, with Zig as linker and C compiler; return its path.

    Raises:
        subprocess.CalledProcessError: The build failed; cargo has said why.
    """
    target, tag = PLATFORMS[platform]
    with tempfile.TemporaryDirectory(prefix="subjectbus-wheel-") as name:
        built = Path(name)
        options = ["--locked", "--zig", "--profile", profile, "--target", target, "--compatibility", tag]
        run("maturin", "build", *options, "--out", str(built), env=environment(profile))
        (wheel,) = built.glob("*.whl")
        return without_own_paths(wheel, folder)


def build_archive(folder: Path) -> Path:
    """Build the source archive into the folder; return its path."""
    run("maturin", "sdist", "--out", str(folder))
    (archive,) = folder.glob("*.tar.gz")
    return archive


def without_own_paths(wheel: Path, folder: Path) -> Path:
    """Write the wheel into the folder, without this machine's paths; return its new path.

    The wheel's bill of materials names crates of the workspace by where they were built.
    """
    with tempfile.TemporaryDirectory(prefix="subjectbus-wheel-") as name:
        run(sys.executable, "-m", "wheel", "unpack", "--dest", name, str(wheel))
        (unpacked,) = Path(name).iterdir()
        for bill in unpacked.glob("*.dist-info/sboms/*.json"):
            bill.write_text(bill.read_text().replace(f"{ROOT.as_uri()}/", "file:///"))
        run(sys.executable, "-m", "wheel", "pack", "--dest-dir", str(folder), str(unpacked))
    return folder / wheel.name


def environment(profile: str) -> dict[str, str]:
    """Return the environment of a build with no debug information and no paths of this machine in results."""
    cargo_home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    paths = {str(ROOT): "subjectbus", cargo_home: "cargo"}
    flags = [f"--remap-path-prefix={path}={name}" for path, name in paths.items()]
    # Maturin looks for Zig among the commands.
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        **os.environ,
        f"CARGO_PROFILE_{profile.upper()}_STRIP": "debuginfo",
        "PATH": commands,
        "RUSTFLAGS": " ".join([os.environ.get("RUSTFLAGS", ""), *flags]).strip(),
    }


def run(*command: str, env: dict[str, str] | None = None) -> None:
    """Run a command of this environment in the top folder."""
    path = Path(sys.executable).parent / command[0]
    subprocess.run([str(path) if path.exists() else command[0], *command[1:]], cwd=ROOT, env=env, check=True)


def write_sums(folder: Path) -> None:
    """Write the SHA-256 of each file in the folder, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))


def main() -> None:
    """Build what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the files (default: dist)")
    parser.add_argument("--profile", default="release", help="cargo's profile (default: release)")
    parser.add_argument("--no-archive", action="store_true", help="leave out the source archive")
    parser.add_argument("platform", nargs="*", help=f"of {', '.join(PLATFORMS)} (default: all)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.platform if name not in PLATFORMS]
    if unknown:
        parser.error(f"unknown platform {unknown[0]!r}, expected one of {', '.join(PLATFORMS)}")
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    # Beside the old files, which are there until all new ones are.
    with tempfile.TemporaryDirectory(prefix=".wheels-", dir=out) as name:
        built = Path(name)
        try:
            for platform in arguments.platform or PLATFORMS:
                build_wheel(platform, arguments.profile, built)
            if not arguments.no_archive:
                build_archive(built)
        except subprocess.CalledProcessError as error:
            sys.exit(f"wheels: {error.cmd[0]} ended with status {error.returncode}")
        write_sums(built)
        for old in (*out.glob("subjectbus-*.whl"), *out.glob("subjectbus-*.tar.gz")):
            old.unlink()
        for file in built.iterdir():
            file.replace(out / file.name)


if __name__ == "__main__":
    main()
