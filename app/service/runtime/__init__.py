"""What the use cases need of the process: tasks, time, its state."""
