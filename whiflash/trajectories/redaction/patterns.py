"""What common secrets look like in tool arguments, commands and configuration."""

from __future__ import annotations

import re

_NAME = (
    r"(?:pass(?:word|wd|phrase)|secret|credentials?|authorization|token|cookie|apikey"
    r"|(?:access|api|auth|client|encryption|private|refresh|secret|session|signing)[-_ ]?key"
    r"|(?<![A-Za-z])(?:pass|pwd|auth|otp|pin|cvv|ssn))(?:[-_]?id)?"
)
_GAP = r"\s{0,8}"
# Group `secret` is hidden. Every repetition is bounded or cannot be entered twice: what a model
# writes must not be able to keep the search busy.
_PATTERNS = (
    # "password": "...", and the same within a JSON text in a JSON text; the end may be cut off
    rf"""{_NAME}["']{_GAP}:{_GAP}(["'])(?P<secret>(?:\\.|(?!\1)[^\\\n]){{3,4096}}+)""",
    rf"""{_NAME}\\{{1,8}}["']{_GAP}:{_GAP}\\{{1,8}}["'](?P<secret>(?:(?!\\{{1,8}}["'])[^\n]){{3,4096}}+)""",
    # PASSWORD=..., password: ..., secret := ...
    rf"""{_NAME}["']?{_GAP}(?:=>|:=|[=:]){_GAP}["']?(?P<secret>[^\s"'\\,;&(){{}}\[\]]{{3,}})""",
    # --api-key ..., --token=..., -pass ...
    rf"""(?<![\w-])--?[\w-]{{0,40}}?{_NAME}[\s=]{_GAP}["']?(?P<secret>[^\s"'\\-][^\s"'\\]{{2,}})""",
    r"""\b(?:Bearer|Basic|Token)\s{1,8}(?=[A-Za-z._~+/-]{0,256}[0-9=])(?P<secret>[\w.~+/=-]{8,})""",
    # the password of a URL, and that of curl -u
    r"""\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@"']{0,128}:(?P<secret>[^\s/@"']{1,256})@""",
    r"""\bcurl\b[^\n]{0,400}?\s-u\s{0,8}["']?[^\s:"']{1,128}:(?P<secret>[^\s"']{1,256})""",
    # keys that say themselves what they are
    r"""\b(?P<secret>(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{16})\b""",
    r"""\b(?P<secret>(?:gh[pousr]|github_pat|glpat|glptt|npm|pypi|hf|dop_v1|shpat|xox[abeoprs])"""
    r"""[-_][\w-]{10,})""",
    r"""\b(?P<secret>(?:sk|pk|rk|whsec)[-_][\w-]{16,})""",
    r"""\b(?P<secret>AIza[\w-]{30,}|ya29\.[\w-]{20,}|SG\.[\w-]{16,64}+\.[\w-]{16,})""",
    r"""\b(?P<secret>eyJ[\w-]{8,2048}+\.eyJ[\w-]{8,}(?:\.[\w-]*)?)""",
    r"""(?P<secret>-----BEGIN [A-Z ]{0,40}PRIVATE KEY--.*?(?:--END [A-Z ]{0,40}KEY-----|\Z))""",
)  # fmt: skip
_COMPILED = tuple(re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in _PATTERNS)
_CARD = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w.-])")


def secret_spans(text: str) -> list[tuple[int, int]]:
    """Character ranges [start, end) that look like secrets: passwords, tokens and keys by name or
    by shape, private keys, card numbers with a right check digit. In no order, may overlap.

    Too much costs some drafts, too little costs a secret, so names are matched generously.
    """
    spans = [match.span("secret") for pattern in _COMPILED for match in pattern.finditer(text)]
    spans += [match.span() for match in _CARD.finditer(text) if _is_card_number(match[0])]
    return spans


def _is_card_number(text: str) -> bool:
    """Luhn's check digit."""
    digits = [int(char) for char in text if char.isdigit()][::-1]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
