class TransformerConfig:
    """A name for type hints."""
