"""What the papers measure on trained networks: functions of models and arrays."""

from capsjax._lazy import modules_of

__getattr__ = modules_of(__name__)
