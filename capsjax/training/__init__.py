"""Training that is the same run on any number of devices, and goes on where it stopped."""
