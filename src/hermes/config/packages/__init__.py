"""Where packages come from: the indexes of this machine, and the hosts of package managers."""
