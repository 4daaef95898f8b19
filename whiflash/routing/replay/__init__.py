"""Policies offline: a round log as known texts, walks along them, and the calibration of tau."""
