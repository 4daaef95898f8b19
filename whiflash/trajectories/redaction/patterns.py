"""What common secrets look like in tool arguments, commands and configuration."""

from __future__ import annotations

import re

_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|credentials?|auth(?:orization)?|bearer"
    r"|(?:access|auth|api|refresh|id|session|client|private|secret|encryption|signing)"
    r"[-_ ]?(?:key|token|secret)(?:[-_ ]?id)?|token|apikey|cookie|otp|pin|cvv|ssn)"
)
# Group 1, where there is one, is the secret; else the whole match is.
_PATTERNS = (
    # "password": "...", also with escaped quotes inside a JSON text, and names like db_password
    rf"""[\w.-]*{_NAME}\\?["']\s*:\s*(\\*["'])(?P<secret>(?:\\.|(?!\1)[^\n]){{3,}}?)\1""",
    # PASSWORD=..., password: ..., --api-key ..., --token=...
    rf"""(?<![A-Za-z])[\w.-]*{_NAME}["']?\s*(?:=>|:=|[=:])\s*(?!["'\\\s]*[{{\[(])"""
    r"""["']?(?P<secret>[^\s"'\\,;&)}\]]{3,})""",
    rf"""--?[\w-]*{_NAME}(?:\s+|=)["']?(?P<secret>[^\s"'\\-][^\s"'\\]{{2,}})""",
    r"""\b(?:Bearer|Basic|Token)\s+(?P<secret>[A-Za-z0-9._~+/=-]{8,})""",
    # the password of a URL, and that of curl -u
    r"""\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@"']{0,128}:(?P<secret>[^\s/@"']{1,256})@""",
    r"""\bcurl\b[^\n]{0,400}?\s-u\s*["']?[^\s:"']+:(?P<secret>[^\s"']+)""",
    # keys that say themselves what they are
    r"""\b(?P<secret>(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{16})\b""",
    r"""\b(?P<secret>(?:gh[pousr]|github_pat|glpat|glptt|npm|pypi|hf|dop_v1|shpat|xox[abeoprs])"""
    r"""[-_][A-Za-z0-9_-]{10,})""",
    r"""\b(?P<secret>(?:sk|pk|rk|whsec)[-_][A-Za-z0-9_-]{16,})""",
    r"""\b(?P<secret>(?:AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}))""",
    r"""\b(?P<secret>eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)""",
    r"""(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))""",
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
