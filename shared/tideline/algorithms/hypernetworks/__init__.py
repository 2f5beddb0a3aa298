"""What methods share whose coordinator generates each client's model by a hypernetwork: settings, messages, both ends' pieces."""
