"""OpenSSH keys, SSHSIG signatures and allowed_signers files."""
