"""A pure model of the dynamic loader over a tree's index; executes nothing."""
