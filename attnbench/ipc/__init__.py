"""Communication between processes: messages over sockets, arrays in shared memory."""
