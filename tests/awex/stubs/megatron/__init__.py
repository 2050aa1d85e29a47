"""Stands in for Megatron, of which the awex package imports one name for a type hint. Nothing here is called."""
