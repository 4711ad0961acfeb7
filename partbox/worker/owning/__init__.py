"""The ownership of partitions: claims, releases, and the page of memory that is shared with the supervisor."""
