"""An OpenAI-compatible HTTP server on the engine."""
