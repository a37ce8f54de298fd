"""Learn new classes online, one example at a time, from few examples, without replay and without forgetting."""

__version__ = "0.1.0"
