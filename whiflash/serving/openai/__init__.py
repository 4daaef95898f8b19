"""The OpenAI HTTP interface: bodies, their conversion to a call, answers, streams, routes."""
