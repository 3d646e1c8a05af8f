"""The benchmark of the server: real processes, real sockets, every response checked against its reference."""
