"""The three documents that people keep and scripts read: ImageProfile, HostProfile and Report."""

from imgcheck.documents.codec import decode, encode, json_schema
from imgcheck.documents.host import HostProfile
from imgcheck.documents.image import ImageProfile
from imgcheck.documents.report import Report

__all__ = ["HostProfile", "ImageProfile", "Report", "decode", "encode", "json_schema"]
