"""The application: sessions, what they share, and the tools of packages that `tools` cannot see."""

from hermes.tools.registry import CORE, add_modules

add_modules(CORE, {"memory": "hermes.memory.memory_tool"})
