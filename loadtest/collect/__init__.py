"""Everything that was gathered, made one result: merged, accounted for, compared with the broker's view."""
