"""The command line as `python -m partbox`."""

from partbox.cli import main

# Worker processes import this module by another name.
if __name__ == "__main__":
    main()
