"""Two engines certify what a composition of pairs costs: saddle points and buckets."""
