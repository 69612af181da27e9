"""Tools around the node, one folder each; nothing that runs live imports them."""
