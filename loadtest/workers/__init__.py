"""The processes of a run: starting them, exchanging messages with them, and always ending them."""
