"""The application: sessions, what they share, and the tools of packages that `tools` cannot see."""

from hermes.tools.registry import CORE, add_modules

_SKILL_TOOLS = ("skill_manage", "skill_view", "skills_list")

add_modules(CORE, {"memory": "hermes.memory.memory_tool"})
add_modules("skills", dict.fromkeys(_SKILL_TOOLS, "hermes.skills.skill_tools"))
add_modules("delegation", {"delegate_task": "hermes.app.extensions.delegation_tool"})
add_modules("mcp", {"mcp_resources": "hermes.mcp.resources_tool"})
