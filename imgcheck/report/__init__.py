"""A Report as text for people and programs."""
