"""A job's image held against the node it is about to start on, cheaply enough for hundreds of tasks.

Modules that run before an answer is found among those kept (`place`, `node`, `kept`) import nothing but what Python
itself has loaded at its start: hashlib, typing, json or pathlib would each cost as much as all their work.
"""
