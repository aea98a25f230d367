"""Design of experiments: six problems and random families with known information gain."""
