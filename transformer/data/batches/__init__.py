"""From token ids to batches: order, mixture, packing and loading."""
