"""The only room that may say whether a candidate is right or fast (DESIGN section 9)."""
