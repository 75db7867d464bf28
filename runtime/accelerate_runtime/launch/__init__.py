"""Starting a script on one process or many."""
