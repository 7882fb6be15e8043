"""What processes say to each other: messages over sockets, arrays in shared memory."""
