"""gRPC: parse, call, answer. No rule about jobs lives here."""
