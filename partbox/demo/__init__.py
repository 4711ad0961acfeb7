"""The main job, live: a shop that publishes, worker processes that deliver, kills and joins, and an audit."""
