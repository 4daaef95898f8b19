"""Front ends: sessions, gRPC servicers, OpenAI HTTP, auth, limits."""
