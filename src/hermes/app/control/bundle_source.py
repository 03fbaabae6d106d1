"""Fetches skills and plugins from where they are offered; nothing of them is trusted or run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes.core.errors import ConfigError, HermesError

if TYPE_CHECKING:
    from hermes.config.load import Setup
    from hermes.skills.bundle import SkillBundle
    from hermes.skills.installer import SkillInstaller

_MAX_ARCHIVE = 20 << 20


async def fetch_bundle(setup: Setup, installer: SkillInstaller, source: str) -> SkillBundle:
    """What is at a source; archives on the web are downloaded here."""
    import asyncio

    address = source.partition("#")[0]
    from hermes.skills.installer import ARCHIVES, SkillInstaller

    if address.startswith("https://") and address.lower().endswith(ARCHIVES):
        data = await _download_archive(setup, address)
        installer = SkillInstaller(installer.folder, lambda _: data, installer.kind)
    return await asyncio.to_thread(installer.fetch_bundle, source)


def summarize_bundle(fetched: SkillBundle) -> str:
    """What was fetched, in a line."""
    from hermes.core.text import format_plural

    count = format_plural(len(fetched.files), "file")
    size = sum(map(len, fetched.files.values()))
    return f"{fetched.name} from {fetched.source}: {count}, {size:,} bytes"


async def review_bundle(
    setup: Setup, installer: SkillInstaller, source: str, name: str, confirm: str
) -> dict[str, Any]:
    """Show what is at a source, or install it when `confirm` is the digest of what was shown. An
    empty source: the one that `name` was installed from."""
    import asyncio

    if source:
        fetched = await fetch_bundle(setup, installer, source)
    else:
        record = installer.read_records().get(name)
        if record is None:
            raise ConfigError(f"{name} was not installed from elsewhere.")
        fetched = await fetch_bundle(setup, installer, record.source)
        installer.require_same(fetched, name)
    if not confirm:
        shown = await asyncio.to_thread(describe_bundle, installer, fetched)
        return {"lines": [], "preview": shown}
    return {"lines": [await asyncio.to_thread(install_bundle, installer, fetched, confirm)]}


def describe_bundle(installer: SkillInstaller, fetched: SkillBundle) -> dict[str, Any]:
    """What a person must see before it is installed: its files, what a scan finds in them, and how
    the installed ones would change."""
    from hermes.core.untrusted_text import reveal_hidden
    from hermes.skills.scan import is_blocked, scan_files

    findings = scan_files(fetched.files)
    files = sorted(fetched.files.items())
    return {
        "name": fetched.name,
        "source": fetched.source,
        "digest": fetched.digest,
        "files": [{"name": reveal_hidden(name), "bytes": len(data)} for name, data in files],
        "findings": [str(finding) for finding in findings],
        "blocked": is_blocked(findings),
        "diff": installer.diff_bundle(fetched),
    }


def install_bundle(installer: SkillInstaller, fetched: SkillBundle, confirm: str) -> str:
    """Install what was shown; the sentence about it. ConfigError when it is blocked, or not what
    `confirm`, a digest, was about."""
    noun = installer.kind.noun
    if fetched.digest != confirm:
        raise ConfigError(f"The {noun} is not the one that was shown. Nothing was installed.")
    if describe_bundle(installer, fetched)["blocked"]:
        raise ConfigError(f"The scan found {fetched.name} dangerous. Nothing was installed.")
    installer.quarantine_bundle(fetched)
    try:
        return installer.place_bundle(fetched)
    finally:
        installer.discard_bundle(fetched)


async def _download_archive(setup: Setup, address: str) -> bytes:
    from hermes.net.web_access import open_web_access

    fetcher = open_web_access(setup.config.web, setup.secrets).fetcher
    try:
        async with fetcher.fetch(address, max_bytes=_MAX_ARCHIVE, timeout=120) as page:
            if page.status != 200:
                raise ConfigError(f"{address} answered with status {page.status}.")
            return page.body
    except HermesError as error:
        raise ConfigError(f"{error} Nothing was installed.") from None
