"""Raw images between recordings and ROS topics, for the commands `play` and `view`."""
