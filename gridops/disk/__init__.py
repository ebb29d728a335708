"""Floor 1: files on a disk that may fail: atomic writes, the keyring, setting damaged files aside; and zones."""
