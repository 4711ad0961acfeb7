"""A node of partbox whose handler gets lists."""

from handle_partbox import ListReporter
from work_partbox import main

if __name__ == "__main__":
    main(ListReporter())
