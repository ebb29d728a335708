"""Floor 2: who may say what: signed envelopes, keys, roots, approvals. Bytes in, typed truth or refusal out."""
