"""Collectors for files: drafter and target folders, hub repositories, single configs and GGUF headers.

Every file is hostile: it may be huge, malformed or a link in a circle. Nothing in one is executed, or used as a path
outside its folder; each way of being unreadable is one line that names the file.
"""
