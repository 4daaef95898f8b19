"""The cluster: the library's parts as Ray Serve deployments, and as plain processes."""
