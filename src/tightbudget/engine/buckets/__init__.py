"""Privacy buckets on a grid of losses: plan, bucket, convolve, profile."""
