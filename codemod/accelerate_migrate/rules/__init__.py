"""One rule a file. A rule is found by walking this package: dropping a module in is the whole act."""
