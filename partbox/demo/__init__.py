"""A live demo of delivery: a shop that publishes, worker processes that are killed and joined, and an audit."""
