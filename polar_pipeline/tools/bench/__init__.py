"""The benchmark of the live node: a synthetic camera and a viewer around it. Only `polar-pipeline bench` imports it."""
