"""Messages and services that clients may rely on for ever."""
