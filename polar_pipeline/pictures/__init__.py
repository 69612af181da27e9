"""Products as pictures to look at: colors, legends, and files."""
