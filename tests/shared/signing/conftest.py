"""Keys of every supported type, made once."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from transload.shared.signing.ssh_keys import SigningKey

KEY_TYPES = ("ed25519", "ecdsa-p256", "ecdsa-p384", "rsa-3072")


@pytest.fixture(scope="session")
def keys() -> dict[str, SigningKey]:
    return {
        "ed25519": SigningKey(ed25519.Ed25519PrivateKey.generate(), "one"),
        "ecdsa-p256": SigningKey(ec.generate_private_key(ec.SECP256R1()), "two"),
        "ecdsa-p384": SigningKey(ec.generate_private_key(ec.SECP384R1()), "three"),
        "rsa-3072": SigningKey(rsa.generate_private_key(65537, 3072), "four"),
    }


@pytest.fixture(scope="session")
def key(keys: dict[str, SigningKey]) -> SigningKey:
    return keys["ed25519"]


@pytest.fixture(params=KEY_TYPES)
def any_key(request: pytest.FixtureRequest, keys: dict[str, SigningKey]) -> SigningKey:
    return keys[request.param]
