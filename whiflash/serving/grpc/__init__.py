"""The public gRPC API: services of plain async methods, and the grpc.aio server around them."""
