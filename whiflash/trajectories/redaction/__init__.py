"""Secrets are cut out of trajectories before any log sees them."""

from whiflash.trajectories.redaction.hook import load_finder
from whiflash.trajectories.redaction.log import RedactedLog
from whiflash.trajectories.redaction.patterns import secret_spans
from whiflash.trajectories.redaction.redactor import Redactor, SpanFinder

__all__ = ["RedactedLog", "Redactor", "SpanFinder", "load_finder", "secret_spans"]
