"""What happens when there are more and more entities: until where it works, and what breaks."""
