"""The model that answers: found, shown, chosen, tested."""
