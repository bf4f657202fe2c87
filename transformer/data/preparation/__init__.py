"""From texts to token ids on disk: filters, the cache, and the report."""
