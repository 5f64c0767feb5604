"""Values from the user: fetches, feeds, batches. Nothing about compiled programs."""
