"""Numbers: a coordinator's turns and a site's steps. The only room of the engine that loads torch."""
