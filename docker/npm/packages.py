"""Makes the npm packages: one for each program, and `loopwright`, which depends on them.

    packages.py VERSION FOLDER x64-gnu=PROGRAM x64-musl=PROGRAM arm64-gnu=PROGRAM …

Writes the tarballs into FOLDER. Needs npm.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCOPE = "@loopwright"
# As npm names the C libraries.
LIBRARIES = {"gnu": "glibc", "musl": "musl"}


def pack(folder, manifest, out):
    """Makes the tarball of a folder, with licences and the text for readers."""
    (folder / "package.json").write_text(json.dumps(manifest, indent=2) + "\n")
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        shutil.copy(ROOT / name, folder)
    shutil.copy(HERE.parent / "wheel/README.md", folder)
    subprocess.run(["npm", "pack", "--silent", "--pack-destination", str(out.resolve())], cwd=folder, check=True)


def main(version, out, *programs):
    common = json.loads((HERE / "package.json").read_text()) | {"version": version}
    dependencies = {}
    with tempfile.TemporaryDirectory() as scratch:
        for platform, program in (one.split("=", 1) for one in programs):
            processor, library = platform.split("-")
            folder = Path(scratch) / platform
            (folder / "bin").mkdir(parents=True)
            shutil.copy(program, folder / "bin/loopwright")
            (folder / "bin/loopwright").chmod(0o755)
            manifest = {key: common[key] for key in ("version", "license", "repository", "files")}
            manifest["name"] = f"{SCOPE}/linux-{platform}"
            manifest["description"] = f"The program of loopwright for Linux on {processor} ({LIBRARIES[library]})"
            manifest |= {"os": ["linux"], "cpu": [processor], "libc": [LIBRARIES[library]], "preferUnplugged": True}
            manifest["publishConfig"] = {"access": "public"}
            pack(folder, manifest, Path(out))
            dependencies[manifest["name"]] = version
        folder = Path(scratch) / "loopwright"
        shutil.copytree(HERE / "bin", folder / "bin")
        pack(folder, common | {"optionalDependencies": dependencies}, Path(out))


main(*sys.argv[1:])
