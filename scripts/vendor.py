"""Copies the JavaScript modules of the dashboard from pinned npm packages.

    python scripts/vendor.py

Each package is checked against its sha512. Bare imports become relative, languages of highlight.js
join its core in one module, and the licences are kept. Needs npm; the dashboard itself does not.
"""

import base64
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

STATIC = Path(__file__).resolve().parent.parent / "src/hermes/server/dashboard/static"
PACKAGES = {
    "preact@11.2.0": (
        "/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {
            "dist/preact.mjs": "vendor-preact.js",
            "hooks/dist/hooks.mjs": "vendor-preact-hooks.js",
        },
    ),
    "htm@3.1.1": (
        "983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.mjs": "vendor-htm.js"},
    ),
    "marked@18.2.0": (
        "KaeL+tAbtvI930q7HE2PN5lYXYdT8EiSmxHlN6F3rsfb57wd5mp5W5TLazpdj4inTQBJdgjYwbs40W/0VUGU+Q==",
        {"lib/marked.esm.js": "vendor-marked.js"},
    ),
    "@highlightjs/cdn-assets@11.12.0": (
        "KvOKXODaiFmId9xaq3xc5xCL66wVLUuOngDbO9B/kewbFTqdGbn2nJxNhN3H5R1cgDTVj6R8vH0zgiNDEGjpDw==",
        {"es/core.min.js": "vendor-highlight.js"},
    ),
}
LANGUAGES = (
    "bash c cpp diff dockerfile go ini java javascript json markdown python rust sql xml yaml"
).split()
BARE_IMPORTS = {'from"preact"': 'from"./vendor-preact.js"'}
CORE_EXPORT = "export{te as default};"


def fetch_package(name: str, folder: Path) -> Path:
    """The unpacked package, after its hash was checked."""
    packed = subprocess.run(
        ["npm", "pack", "--silent", name], cwd=folder, check=True, capture_output=True, text=True
    )
    archive = folder / packed.stdout.split()[-1]
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != PACKAGES[name][0]:
        sys.exit(
            f"{name} has the sha512 {digest}, which is not the pinned one. Nothing was changed."
        )
    target = folder / archive.stem
    with tarfile.open(archive) as packed_files:
        packed_files.extractall(target, filter="data")
    return target / "package"


def adapt_module(text: str) -> str:
    for bare, relative in BARE_IMPORTS.items():
        text = text.replace(bare, relative)
    return re.sub(r"\n?//# sourceMappingURL=.*", "", text).rstrip() + "\n"


def join_languages(package: Path, core: str) -> str:
    if CORE_EXPORT not in core:
        sys.exit("highlight.js exports its core in another way; adapt scripts/vendor.py.")
    parts = [core.replace(CORE_EXPORT, "")]
    for name in LANGUAGES:
        text = (package / "es/languages" / f"{name}.min.js").read_text(encoding="utf-8")
        text = re.sub(r";?export default hljsGrammar;?", "", text)
        parts.append(f'{{{text.rstrip()};te.registerLanguage("{name}",hljsGrammar)}}\n')
    return "".join(parts).replace("var hljsGrammar", "const hljsGrammar") + CORE_EXPORT + "\n"


def main() -> int:
    licences = []
    with tempfile.TemporaryDirectory() as name:
        for package, (_, files) in PACKAGES.items():
            folder = fetch_package(package, Path(name))
            for source, target in files.items():
                text = adapt_module((folder / source).read_text(encoding="utf-8"))
                if target == "vendor-highlight.js":
                    text = join_languages(folder, text)
                (STATIC / target).write_text(text, encoding="utf-8")
            licence = (folder / "LICENSE").read_text(encoding="utf-8").strip()
            licences.append(f"{package}\n\n{licence}\n")
    (STATIC / "LICENCES.txt").write_text("\n\n".join(licences), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
