"""A disk so small that it can be filled, for the server's user, where the machine lets one be mounted."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from servers import new_folder

from partbox.embedded import server_user
from partbox.errors import PartboxError
from partbox_lab.chaos.disk import SmallDisk, mounted


@contextmanager
def small_disk(megabytes: int) -> Iterator[SmallDisk]:
    """One of this size; skips the test where none can be mounted."""
    user = server_user.find_server_user()
    with new_folder() as folder, ExitStack() as stack:
        server_user.make_open_folder(folder)
        try:
            disk = stack.enter_context(mounted(folder, megabytes, (user.pw_uid, user.pw_gid) if user else None))
        except PartboxError as error:
            pytest.skip(str(error))
        yield disk
