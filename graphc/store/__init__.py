"""What is kept on disk for later processes, and what it depends on beside the program."""
