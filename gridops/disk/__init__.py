"""Floor 1: files on a disk that may fail: atomic writes, the keyring, and setting damaged files aside."""
