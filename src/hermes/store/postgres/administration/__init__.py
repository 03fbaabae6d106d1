"""What the operator of a cluster does with its database: checks, moves in and out."""
