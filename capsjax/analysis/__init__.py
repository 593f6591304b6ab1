"""What the papers measure on trained networks: functions of models and arrays."""
