"""Keys and logins of providers: what `hermes auth` adds, shows and removes."""
