"""The node's fast networks: InfiniBand, RoCE, Omni-Path, EFA and Slingshot devices by their kernel drivers."""

from pathlib import PurePosixPath

from imgcheck.documents.host import Fact, absent, known, unknown
from imgcheck.host.files import Root

_CLASSES = ("/sys/class/infiniband", "/sys/class/cxi")


def probe_fabrics(root: Root) -> Fact[tuple[str, ...]]:
    """Drivers of the devices in sysfs; their names do not tell, since udev renames them after their slot."""
    if root.names("/sys/class") is None:
        return unknown("/sys/class cannot be listed")
    drivers = set()
    for directory in _CLASSES:
        for device in root.names(directory) or ():
            driver = PurePosixPath(root.real(f"{directory}/{device}/device/driver")).name
            drivers.add(driver if driver != "driver" else device.rstrip("0123456789_"))
    if not drivers:
        return absent(" and ".join(_CLASSES) + " hold no device")
    return known(tuple(sorted(drivers)), ", ".join(_CLASSES))
