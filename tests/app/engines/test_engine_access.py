"""An engine behind a URL that wants a key, with a certificate of an authority of its own."""

import argparse
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.config.config import ConfigError, parse
from app.conformance.suite import configuration, run_gateway
from app.promotion.spec_catalogue import SpecCatalogue
from app.registry.values import KnownEngine
from deploy.core.engine_access import EngineAccess
from deploy.engine.probe import probe, served_model
from deploy.engine.spec import EngineSpec, spec_digest, spec_text
from gates.run.http import RequestTimeouts, TimedClient
from gates.run.target import Target
from tests.deploy.server import Handler, Server

KEY = "sk-of-the-engine"
HELLO = {"messages": [{"role": "user", "content": "Hello!"}], "model": "annie"}


class Guarded(Handler):
    """The engine. It wants the key that `wanted` is now, and quotes a wrong one."""

    given = argparse.Namespace(served_model_name="served", model="served")
    wanted = KEY

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if (given := self.headers.get("authorization")) == f"Bearer {self.wanted}":
            return True
        self._whole(401, {"error": {"message": f"wrong key: {given}"}})
        self.close_connection = True
        return False

    def log_message(self, format: str, *args: object) -> None:
        pass


def certify(folder: Path) -> Path:
    """A self-signed certificate of 127.0.0.1 with its key, in one PEM."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "e")]),
    )
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256())
    )  # fmt: skip
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(plain + made.public_bytes(serialization.Encoding.PEM))
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return folder / "server.pem"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[str, EngineAccess]]:
    """The engine's address, and the access to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certify(tmp_path))
    (tmp_path / "engine.key").write_text(KEY + "\n")
    (tmp_path / "engine.key").chmod(0o600)
    Guarded.wanted = KEY
    with Server(("127.0.0.1", 0), Guarded) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield (
            f"https://127.0.0.1:{server.server_port}",
            EngineAccess(tmp_path / "engine.key", tmp_path / "ca.pem"),
        )
        server.shutdown()
        thread.join()


async def test_a_gateway_and_its_probes_send_the_key_over_a_connection_that_the_authority_vouches_for(
    guarded: tuple[str, EngineAccess], tmp_path: Path
) -> None:
    url, access = guarded
    assert access.key_file is not None
    async with (
        run_gateway(configuration(url, "openai", tmp_path, access=access)) as (_, at),
        httpx2.AsyncClient() as client,
    ):
        asked = await client.post(f"{at}/v1/chat/completions", json=HELLO, timeout=60)
        assert asked.status_code == 200, asked.text

        Guarded.wanted = "sk-rotated"
        access.key_file.write_text("sk-rotated")
        asked = await client.post(f"{at}/v1/chat/completions", json=HELLO, timeout=60)
        assert asked.status_code == 200, asked.text


async def test_a_gate_s_client_sends_the_same(guarded: tuple[str, EngineAccess]) -> None:
    url, access = guarded
    target = Target(
        url=url, served_model="served", dialect="openai", artefact="", engine="", **access.client()
    )
    assert KEY not in repr(target)
    attempt = await TimedClient(RequestTimeouts()).ask(target, b"{}")
    assert (attempt.status, attempt.fault) == (200, None)


async def test_a_wrong_key_is_said_without_the_engine_s_words_which_quote_it(
    guarded: tuple[str, EngineAccess],
) -> None:
    url, access = guarded
    Guarded.wanted = "another"
    found = await probe(url, model="served", deadline_s=60, dialect="openai", access=access)
    assert "HTTP 401" in found.for_operators and "key_file" in found.for_operators
    assert KEY not in found.for_operators


async def test_without_the_authority_nothing_is_sent(guarded: tuple[str, EngineAccess]) -> None:
    url, access = guarded
    assert await served_model(url, deadline_s=60, access=access) == "served"
    assert await served_model(url, deadline_s=60, access=replace(access, ca_file=None)) is None


@pytest.mark.parametrize(
    ("field", "text", "told"),
    [
        ("key_file", None, "No such file"),
        ("key_file", "two words", "holds no key"),
        ("key_file", "", "holds no key"),
        ("key_file", "open", "others may open it"),
        ("ca_file", "no certificate", "holds no certificate in PEM"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_when_the_configuration_is_read(
    field: str, text: str | None, told: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "f").write_text(text)
        (tmp_path / "f").chmod(0o644 if text == "open" else 0o600)
    engine = {"dialect": "openai", "driver": "url", "url": "http://e", field: "f"}
    with pytest.raises(ConfigError, match=rf"engines\.e\.{field}: .*{told}") as caught:
        parse({"engines": {"e": engine}, "models": {"annie": {"live": "e"}}}, tmp_path)
    assert "two words" not in str(caught.value)


def test_they_are_no_part_of_an_engine_s_identity(tmp_path: Path) -> None:
    """So a key that moves demands no new report; and a promoted engine whose table was edited keeps the key that stands there."""
    plain = EngineSpec(name="e", dialect="openai", driver="url", url="http://e")
    keyed = replace(plain, key_file=tmp_path / "k")
    assert spec_digest(plain) == spec_digest(keyed) and "key_file" not in spec_text(keyed)

    catalogue = SpecCatalogue({"e": replace(keyed, media=("image",))})
    catalogue.add(KnownEngine(digest=spec_digest(plain), name="e", artefact=None, spec=spec_text(plain)))
    assert catalogue[spec_digest(plain)].key_file == tmp_path / "k"
