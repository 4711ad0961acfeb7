"""The commands of the lab, which `partbox` finds by their entry points."""
