# Run once at start-up, outside of any isolation: reports this interpreter's files and its packages.
import json
import os
import sys
import sysconfig

executable = sys.executable
paths = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
paths.update(path for path in sys.path if path)
paths.update(path for name, path in sysconfig.get_paths().items() if name not in ("scripts", "data"))
# The links that lead to the program; only the links, because their directories may contain other files.
links = []
seen = executable
while os.path.islink(seen) and len(links) < 40:
    target = os.readlink(seen)
    links.append((seen, target))
    seen = os.path.normpath(os.path.join(os.path.dirname(seen), target))
paths.add(seen)
try:
    # Shared libraries beside the interpreter or in a store of their own.
    with open("/proc/self/maps") as maps:
        for line in maps:
            name = line.rstrip("\n").partition("/")[2]
            if ".so" in name:
                paths.add(os.path.dirname("/" + name))
except OSError:
    pass

packages = []
try:
    from importlib import metadata

    known = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            known.setdefault(name.lower(), (name, distribution.version or ""))
    packages = [known[key] for key in sorted(known)]
except Exception:
    pass

json.dump(
    {
        "version": list(sys.version_info[:3]),
        "executable": executable,
        "links": links,
        "paths": sorted(os.path.abspath(path) for path in paths),
        "packages": packages,
    },
    sys.stdout,
)
