"""What decoding is compared with: other libraries holding the same weights."""
