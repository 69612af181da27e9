"""What `polar-pipeline doctor` checks."""
