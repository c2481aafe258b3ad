"""Workers on the nodes of a cluster."""
