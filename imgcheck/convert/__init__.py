"""An image written as a tree or file that a runtime starts."""
