"""What runs: logs, counters and probes of a serving engine, read into observations of a case."""
