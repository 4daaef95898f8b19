"""The demo's content: scenarios, the tools they use, and the session that runs them."""
