"""Errors a user can cause or mend. Each is one line: the thing, the value found, the remedy.

The command line prints ``error: <message>`` and exits with ``exit_code``; everything else is a defect of
draftproof itself and shows a traceback with ``--debug`` only.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FINDINGS = 1  # a check ran and failed, e.g. "text identical: no"
EXIT_USAGE = 2  # bad flag, bad value, unreadable or unfit input
EXIT_UNAVAILABLE = 3  # something needed could not be reached: hub, wheel, device, disk
EXIT_INTERRUPTED = 130  # Ctrl-C, as shells count it


class DraftproofError(Exception):
    """Base of all errors with a remedy. ``str(error)`` is one line for a person."""

    exit_code = EXIT_USAGE


class UsageError(DraftproofError):
    """A flag, a value or a combination of them that cannot be meant."""


class SpecError(DraftproofError):
    """A drafter's configuration is incomplete or contradicts itself; names field, value and what is allowed."""


class CheckpointError(DraftproofError):
    """A checkpoint's files are missing, truncated, or have other tensors than its configuration says."""


class MismatchError(DraftproofError):
    """Drafter and target do not belong together (width, vocabulary, layer count)."""


class CapabilityError(DraftproofError):
    """Something is asked of a model family or device that it cannot do."""


class UnavailableError(DraftproofError):
    """A resource outside the process is missing: hub, wheel, device, disk space."""

    exit_code = EXIT_UNAVAILABLE
