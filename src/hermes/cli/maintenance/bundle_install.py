"""Installs and updates what comes as a folder of files, skills or plugins, after asking."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hermes.app.control.bundle_source import fetch_bundle, summarize_bundle
from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.terminal.text import strip_controls
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.config.load import Setup
    from hermes.skills.bundle import SkillBundle
    from hermes.skills.installer import InstalledSkill, SkillInstaller

_WARNINGS = {
    "skill": "The agent will follow its instructions.",
    "plugin": "Once enabled, its code runs with all rights of this program.",
}


class BundleCommand:
    """`install` and `update` of a command; `args` are its arguments."""

    def __init__(self, args: Namespace, setup: Setup, installer: SkillInstaller) -> None:
        self._args = args
        self._setup = setup
        self._installer = installer
        self._noun = installer.kind.noun

    async def install_bundle(self) -> int:
        fetched = await fetch_bundle(self._setup, self._installer, self._args.words[0])
        name, noun = fetched.name, self._noun
        if self._installer.find_path(name) is not None:
            raise ConfigError(
                f"There is a {noun} {name} already. Run: hermes {noun}s update {name}, or remove "
                "it first."
            )
        print_summary(fetched)
        return self._decide_install(fetched)

    async def update_bundles(self) -> int:
        records = self._installer.read_records()
        if self._args.words:
            return await self._update_bundle(self._args.words[0], records)
        worst, failures = 0, list[ConfigError]()
        for name in sorted(records):
            try:
                worst = await self._update_bundle(name, records) or worst
            except ConfigError as error:  # the others are updated all the same
                failures.append(error)
        for failure in failures[:-1]:
            print_stderr(str(failure))
        if failures:
            raise failures[-1]
        return worst

    async def _update_bundle(self, name: str, records: Mapping[str, InstalledSkill]) -> int:
        if name not in records:
            raise ConfigError(
                f"{name} was not installed from elsewhere; there is nothing to update."
            )
        fetched = await fetch_bundle(self._setup, self._installer, records[name].source)
        self._installer.require_same(fetched, name)
        if fetched.digest == records[name].digest:
            print(f"{name}: up to date")
            return 0
        if self._installer.find_changes(name) and not self._args.force:
            print_stderr(f"{name} was changed here; --force replaces it and keeps a copy")
            return EXIT_FAILED
        print(strip_controls(self._installer.diff_bundle(fetched)))
        return self._decide_install(fetched)

    def _decide_install(self, fetched: SkillBundle) -> int:
        self._installer.quarantine_bundle(fetched)
        try:
            return self._ask_and_place(fetched)
        finally:
            self._installer.discard_bundle(fetched)

    def _ask_and_place(self, fetched: SkillBundle) -> int:
        from hermes.cli.terminal.picker import confirm_change

        args = self._args
        if show_findings(fetched) and not (args.force and sys.stdin.isatty()):
            print(f"blocked: {fetched.name} was not installed", file=sys.stderr)
            return EXIT_FAILED
        if not args.yes:
            question = f"Install {fetched.name}? {_WARNINGS[self._noun]}"
            command = f"{self._noun}s {args.action}"
            code = confirm_change(command, question, "Nothing was installed.")
            if code is not None:
                return code
        print(self._installer.place_bundle(fetched))
        return 0


def show_findings(fetched: SkillBundle) -> bool:
    """Print what a scan finds; whether it is dangerous."""
    from hermes.skills.scan import is_blocked, scan_files

    findings = scan_files(fetched.files)
    for finding in findings:
        print(strip_controls(str(finding)))
    return is_blocked(findings)


def print_summary(fetched: SkillBundle) -> None:
    from hermes.core.untrusted_text import reveal_hidden

    print(strip_controls(summarize_bundle(fetched)))
    for name, data in sorted(fetched.files.items()):
        print(f"  {strip_controls(reveal_hidden(name))}  {len(data):,} bytes")
