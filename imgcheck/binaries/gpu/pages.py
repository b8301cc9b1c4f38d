"""Gives pages of a mapped file back while it is read, so that a walk over 800 MB does not hold 800 MB resident."""

import mmap


def release(view: memoryview) -> None:
    """Unmaps the pages of the read-only file map beneath `view`; they come back from the page cache when touched.

    Reading one header maps the 64 kB around it (fault-around), so thousands of headers would map most of a file.
    Nothing happens where `view` is no such map: a private or writable one could lose what was written (madvise(2)).
    """
    if view.readonly and isinstance(view.obj, mmap.mmap):
        view.obj.madvise(mmap.MADV_DONTNEED)
