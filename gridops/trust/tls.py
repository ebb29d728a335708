"""TLS identities: self-signed certificates, their fingerprints, and the context of a client that pins them.

The controller's certificate stands in the root document, a host's front in its signed heartbeat. TLS gives privacy
and a cheap refusal; it never authorises. `self_signed` is the one place of this room that draws randomness: a TLS key
comes from the cryptography library's own generator, since it has no seed form worth keeping.
"""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_ALWAYS = ("localhost", "127.0.0.1", "::1")
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL; the ssl module has no name for it."""


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """A certificate and its private key, both PEM. The key goes to `disk.keyring` and nowhere else."""

    cert_pem: str
    key_pem: bytes = field(repr=False)


def self_signed(names: Sequence[str], not_before_ms: int, days: int) -> TlsIdentity:
    """An ECDSA P-256 identity for these host names and addresses, and always for this machine by itself."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gridops")])
    begin = datetime.fromtimestamp(not_before_ms // 1000, tz=UTC)
    key_id = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([_general(n) for n in _names(names)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(key_id, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id), critical=False)
        .sign(private, hashes.SHA256())
    )
    return TlsIdentity(
        cert_pem=certificate.public_bytes(Encoding.PEM).decode(),
        key_pem=private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def fingerprint(cert_pem: str) -> str:
    """SHA-256 of the certificate's DER form, as 64 hex digits. Raises ValueError for anything that is not one PEM."""
    certificate = x509.load_pem_x509_certificate(cert_pem.encode())
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()


def valid_until_ms(cert_pem: str) -> int:
    """When a certificate ends. Hosts do not look at it; whoever watches the port with other tools does."""
    certificate = x509.load_pem_x509_certificate(cert_pem.encode())
    return int(certificate.not_valid_after_utc.timestamp()) * 1000


def pinned_client_context(cert_pems: Sequence[str]) -> ssl.SSLContext:
    """A client that accepts exactly these certificates, over TLS 1.3. Raises ValueError if there are none.

    Names and dates are not looked at: the pin says which certificate, whoever listens at the address, and the pin's
    own document has an expiry. So a clock that is an hour wrong cuts no host off its controller.
    """
    if not cert_pems:
        raise ValueError("there is no certificate to pin")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    for pem in cert_pems:
        fingerprint(pem)
        context.load_verify_locations(cadata=pem)
    return context


def _names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*names, *_ALWAYS)))


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
