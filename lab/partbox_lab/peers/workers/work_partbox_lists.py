"""A node of partbox with a handler of lists."""

from handle_partbox import ListReporter
from work_partbox import main

if __name__ == "__main__":
    main(ListReporter())
