"""Lightning modules, optimisers, schedules and callbacks."""
