"""Speed of this runtime beside the original and beside the floor, measured in one run."""
