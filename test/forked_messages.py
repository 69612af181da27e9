"""Imported by the server of `forks`: it reads the message definitions, a tenth of what the node's start takes."""

from polar_pipeline.messages import typestore

typestore()
