"""Its commands, which `partbox` finds by their entry points."""
