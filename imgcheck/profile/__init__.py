"""An image's layers to its ImageProfile."""
