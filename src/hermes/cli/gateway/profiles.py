"""The other profiles that a gateway serves: each with its own home, and variables from its .env."""

from hermes.config import paths
from hermes.config.env import get_environment
from hermes.config.load import Setup, load_setup
from hermes.core.errors import ConfigError

_SHARED_VARIABLES = ("HERMES_HOME", "HOME", "PATH", "LANG", "USER", "SHELL", "TMPDIR", "TZ")


def load_profiles(main: Setup) -> dict[str, Setup]:
    """The setups of the profiles named in `gateway.profiles`. ConfigError when one does not exist
    or cannot be read."""
    environ = get_environment()
    own = {name: environ[name] for name in _SHARED_VARIABLES if name in environ}
    found: dict[str, Setup] = {}
    for name in main.config.gateway.profiles:
        home = paths.find_home(environ, name)
        if not home.is_dir() or home == main.home:
            raise ConfigError(
                f"config.yaml: gateway.profiles names {name}, and there is no other profile of "
                "that name. See: hermes profile list"
            )
        # Keys of this process have to be hidden from the commands of the profile, too.
        found[name] = load_setup(name, own, keys=main.secrets.key_variables)
    return found
