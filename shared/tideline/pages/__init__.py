"""Files of web pages: what the coordinator's dashboard and a site owner's page share, and how either has its own read."""
