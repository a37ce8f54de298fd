"""What is learned: which parts of a network are theta and W, how trajectories are drawn, and the loss."""
