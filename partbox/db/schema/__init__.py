"""The schema itself: its migrations, run or written as scripts, and its grants."""
