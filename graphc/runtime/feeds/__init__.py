"""Values from the user: fetches, feeds and batches. No compiled programs here."""
