"""What jobs compute: functions from DataFrame to DataFrame, without input or output."""
