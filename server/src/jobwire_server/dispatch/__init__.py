"""Who gets woken: claim streams, waiting calls, timers."""
