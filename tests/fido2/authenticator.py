#!/usr/bin/python3
"""A FIDO2 security key in software, for tests: plugged in at its start, out at its end.

It is a HID device of the kernel's uhid (CTAPHID of the CTAP 2.1 specification, section 11.2) with what
LUKS2 tokens need: authenticatorGetInfo, MakeCredential and GetAssertion with the extension hmac-secret,
ClientPIN with both protocols. Its credentials are not stored: the credential's id holds what the secrets
are derived from, with the key's own secret, --seed. The same seed is the same key plugged in again, but for
the count of wrong PINs.

Prints "plugged in" when it can be used, "wants a touch" each time that it does, and "does not blink any more"
when that is over. SIGUSR1 is a touch, SIGUSR2 the end of the time for one.
"""

import argparse
import glob
import hashlib
import hmac
import os
import select
import signal
import struct
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2 import cbor
from fido2.cose import ES256
from fido2.ctap import CtapError
from fido2.ctap2 import AttestedCredentialData, AuthenticatorData, PinProtocolV1, PinProtocolV2
from fido2.hid import CAPABILITY, CTAPHID

ERR, FLAG = CtapError.ERR, AuthenticatorData.FLAG
AAGUID = bytes(16)
PIN_TRIES, PIN_TRIES_AT_ONCE = 8, 3
# GetAssertion and MakeCredential, of the permissions that a PIN token may have.
PERMISSIONS = 1 | 2


class Credentials:
    """What is derived from the secret that no two keys share."""

    NONCE, LENGTH = 32, 64

    def __init__(self, seed):
        self.seed = hashlib.sha256(seed.encode()).digest()

    def derive(self, what, data):
        return hmac.digest(self.seed, what.encode() + b"\0" + data, "sha256")

    def new(self, rp):
        nonce = os.urandom(self.NONCE)
        return nonce + self.derive("of this key", nonce + rp.encode())

    def has(self, credential, rp):
        nonce, mark = credential[: self.NONCE], credential[self.NONCE :]
        return hmac.compare_digest(mark, self.derive("of this key", nonce + rp.encode()))

    def private_key(self, credential):
        # Far below the order of the curve.
        return ec.derive_private_key(int.from_bytes(self.derive("sign", credential)[:31], "big") + 1, ec.SECP256R1())

    def secret(self, credential, verified):
        return self.derive("with PIN" if verified else "without PIN", credential)


class Authenticator:
    """CTAP2 commands. `touch` waits for one, or raises CtapError."""

    def __init__(self, options, touch):
        self.options, self.touch = options, touch
        self.credentials = Credentials(options.seed)
        self.protocols = {protocol.VERSION: protocol() for protocol in (PinProtocolV1, PinProtocolV2)}
        self.tries, self.wrong_at_once = PIN_TRIES, 0
        self.agreement = ec.generate_private_key(ec.SECP256R1())
        self.token = os.urandom(32)
        self.counter = int(time.time())

    def command(self, request):
        """The answer: a status, and CBOR if that is success."""
        commands = {1: self.make_credential, 2: self.get_assertion, 4: self.get_info, 6: self.client_pin}
        try:
            if request[0] not in commands:
                raise CtapError(ERR.INVALID_COMMAND)
            answer = commands[request[0]](cbor.decode(request[1:]) if request[1:] else {})
        except CtapError as error:
            return bytes([error.code])
        return bytes([ERR.SUCCESS]) + (cbor.encode(answer) if answer else b"")

    def get_info(self, _):
        options = {"rk": False, "up": True, "plat": False, "pinUvAuthToken": True}
        options["clientPin"] = self.options.pin is not None
        versions, protocols = ["FIDO_2_0", "FIDO_2_1"], [self.options.protocol]
        return {1: versions, 2: ["hmac-secret"], 3: AAGUID, 4: options, 5: 1200, 6: protocols}

    def protocol(self, number):
        if number != self.options.protocol:
            raise CtapError(ERR.INVALID_PARAMETER)
        return self.protocols[number]

    def shared_secret(self, protocol, peer):
        x, y = (int.from_bytes(peer[part], "big") for part in (-2, -3))
        public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        return protocol.kdf(self.agreement.exchange(ec.ECDH(), public))

    def client_pin(self, request):
        subcommand = request[2]
        if subcommand == 1:
            return {3: self.tries}
        protocol = self.protocol(request[1])
        if subcommand == 2:
            # "Although this is not the algorithm actually used", says the specification.
            return {1: {**ES256.from_cryptography_key(self.agreement.public_key()), 3: -25}}
        if subcommand not in (5, 9):
            raise CtapError(ERR.INVALID_SUBCOMMAND)
        if self.options.pin is None:
            raise CtapError(ERR.PIN_NOT_SET)
        if subcommand == 9 and request[9] & ~PERMISSIONS:
            raise CtapError(ERR.UNAUTHORIZED_PERMISSION)
        if self.tries == 0:
            raise CtapError(ERR.PIN_BLOCKED)
        if self.wrong_at_once == PIN_TRIES_AT_ONCE:
            raise CtapError(ERR.PIN_AUTH_BLOCKED)
        secret = self.shared_secret(protocol, request[3])
        wanted = hashlib.sha256(self.options.pin.encode()).digest()[:16]
        if not hmac.compare_digest(protocol.decrypt(secret, request[6]), wanted):
            self.tries, self.wrong_at_once = self.tries - 1, self.wrong_at_once + 1
            self.agreement = ec.generate_private_key(ec.SECP256R1())
            if self.tries == 0:
                raise CtapError(ERR.PIN_BLOCKED)
            raise CtapError(ERR.PIN_AUTH_BLOCKED if self.wrong_at_once == PIN_TRIES_AT_ONCE else ERR.PIN_INVALID)
        self.tries, self.wrong_at_once = PIN_TRIES, 0
        self.token = os.urandom(32)
        return {2: protocol.encrypt(secret, self.token)}

    def verified(self, data, mark, number):
        """Whether the PIN was given, by the mark that its token has made on the request."""
        if mark is None:
            return False
        wanted = self.protocol(number).authenticate(self.token, data)
        if self.options.pin is None or not hmac.compare_digest(wanted, mark):
            raise CtapError(ERR.PIN_AUTH_INVALID)
        return True

    def make_credential(self, request):
        rp = request[2]["id"]
        if not any(wanted["alg"] == ES256.ALGORITHM for wanted in request[4]):
            raise CtapError(ERR.UNSUPPORTED_ALGORITHM)
        if request.get(7, {}).get("rk"):
            raise CtapError(ERR.UNSUPPORTED_OPTION)
        verified = self.verified(request[1], request.get(8), request.get(9))
        if self.options.pin is not None and not verified:
            raise CtapError(ERR.PIN_REQUIRED)
        self.touch()
        credential = self.credentials.new(rp)
        public = ES256.from_cryptography_key(self.credentials.private_key(credential).public_key())
        extensions = {"hmac-secret": True} if request.get(6, {}).get("hmac-secret") else None
        attested = AttestedCredentialData.create(AAGUID, credential, public)
        return {1: "none", 2: self.data(rp, True, verified, attested, extensions), 3: {}}

    def get_assertion(self, request):
        rp, extension = request[1], request.get(4, {}).get("hmac-secret")
        wants_touch = request.get(5, {}).get("up", True)
        verified = self.verified(request[2], request.get(6), request.get(7))
        found = [given["id"] for given in request.get(3, []) if self.credentials.has(given["id"], rp)]
        if not found:
            raise CtapError(ERR.NO_CREDENTIALS)
        if extension and not wants_touch and not self.options.silent:
            # As of CTAP 2.1; keys of CTAP 2.0 may give the secret without.
            raise CtapError(ERR.UNSUPPORTED_OPTION)
        if wants_touch:
            self.touch()
        extensions = {"hmac-secret": self.secret(extension, found[0], verified)} if extension else None
        data = self.data(rp, wants_touch, verified, b"", extensions)
        signature = self.credentials.private_key(found[0]).sign(data + request[2], ec.ECDSA(hashes.SHA256()))
        return {1: {"id": found[0], "type": "public-key"}, 2: data, 3: signature}

    def secret(self, extension, credential, verified):
        """The HMAC of one salt or two, encrypted for the other side."""
        protocol = self.protocol(extension.get(4, 1))
        shared = self.shared_secret(protocol, extension[1])
        if not hmac.compare_digest(protocol.authenticate(shared, extension[2]), extension[3]):
            raise CtapError(ERR.PIN_AUTH_INVALID)
        salts = protocol.decrypt(shared, extension[2])
        if len(salts) not in (32, 64):
            raise CtapError(ERR.INVALID_LENGTH)
        key = self.credentials.secret(credential, verified)
        secrets = (hmac.digest(key, salts[at : at + 32], "sha256") for at in range(0, len(salts), 32))
        return protocol.encrypt(shared, b"".join(secrets))

    def data(self, rp, touched, verified, attested, extensions):
        self.counter += 1
        flags = FLAG.USER_PRESENT * touched | FLAG.USER_VERIFIED * verified | FLAG.ATTESTED * bool(attested)
        flags |= FLAG.EXTENSION_DATA * (extensions is not None)
        rp_hash = hashlib.sha256(rp.encode()).digest()
        return bytes(AuthenticatorData.create(rp_hash, flags, self.counter, attested, extensions))


class Device:
    """A HID device of the kernel that speaks CTAPHID, in packets of 64 bytes."""

    PACKET = 64
    DESTROY, OUTPUT, CREATE2, INPUT2 = 1, 6, 11, 12
    BROADCAST = 0xFFFFFFFF
    ERR_INVALID_CMD, ERR_CHANNEL_BUSY, UP_NEEDED = 0x01, 0x06, 2
    # One collection of usage page 0xf1d0, usage 1, with 64 bytes in and out.
    DESCRIPTOR = bytes.fromhex("06d0f10901a101 0920150026ff007508954081 02 0921150026ff007508954091 02 c0")

    def __init__(self, options):
        self.options = options
        self.authenticator = Authenticator(options, self.wait_for_touch)
        self.channels, self.channel = 0, None
        self.signals = []
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda number, _: self.signals.append(number))
        self.uhid = os.open("/dev/uhid", os.O_RDWR | os.O_CLOEXEC)
        names = struct.pack("128s64s64s", b"Xtent test key", b"", b"%d" % os.getpid())
        numbers = struct.pack("<HHIIII", len(self.DESCRIPTOR), 3, 0x1209, 0x0001, 1, 0)
        os.write(self.uhid, struct.pack("<I", self.CREATE2) + names + numbers + self.DESCRIPTOR.ljust(4096, b"\0"))
        while not self.is_there():
            time.sleep(0.02)
        print("plugged in", flush=True)

    @staticmethod
    def is_there():
        """Whether the kernel has made its node."""
        wanted = f"HID_UNIQ={os.getpid()}\n"
        for folder in glob.glob("/sys/class/hidraw/*"):
            with open(folder + "/device/uevent") as file:
                if wanted in file.readlines():
                    return os.path.exists("/dev/" + os.path.basename(folder))
        return False

    def packets(self, patience=None):
        """Packets as they come; ends when none has come for `patience` seconds."""
        while select.select([self.uhid], [], [], patience)[0]:
            event = os.read(self.uhid, 4380)
            if struct.unpack_from("<I", event)[0] == self.OUTPUT:
                (size,) = struct.unpack_from("<H", event, 4 + 4096)
                # A report's number, zero, may be before it.
                yield event[4 + size - self.PACKET : 4 + size]

    def send(self, channel, command, data):
        sequence, head = 0, struct.pack(">IBH", channel, 0x80 | command, len(data))
        while True:
            room = self.PACKET - len(head)
            packet = (head + data[:room]).ljust(self.PACKET, b"\0")
            os.write(self.uhid, struct.pack("<IH", self.INPUT2, self.PACKET) + packet)
            data, head, sequence = data[room:], struct.pack(">IB", channel, sequence), sequence + 1
            if not data:
                return

    def run(self):
        message, wanted, command = b"", 0, None
        for packet in self.packets():
            channel, kind = struct.unpack_from(">IB", packet)
            if kind & 0x80:
                self.channel, command = channel, kind & 0x7F
                (wanted,) = struct.unpack_from(">H", packet, 5)
                message = packet[7:]
            elif channel == self.channel:
                message += packet[5:]
            if command is not None and len(message) >= wanted:
                self.answer(command, message[:wanted])
                message, command = b"", None

    def answer(self, command, data):
        if command == CTAPHID.INIT:
            self.send(self.channel, command, self.init(data))
        elif command == CTAPHID.CBOR:
            channel = self.channel
            self.send(channel, command, self.authenticator.command(data))
        elif command != CTAPHID.CANCEL:
            self.send(self.channel, CTAPHID.ERROR, bytes([self.ERR_INVALID_CMD]))

    def init(self, nonce):
        channel = self.channel
        if channel == self.BROADCAST:
            self.channels += 1
            channel = self.channels
        return nonce + struct.pack(">IBBBBB", channel, 2, 1, 0, 0, CAPABILITY.CBOR | CAPABILITY.NMSG)

    def wait_for_touch(self):
        """Until somebody touches it, or nobody did, or the other side does not want it any more."""
        self.signals.clear()
        print("wants a touch", flush=True)
        if self.options.touch == "at-once":
            return
        try:
            self.blink()
        finally:
            print("does not blink any more", flush=True)

    def blink(self):
        while signal.SIGUSR1 not in self.signals:
            if signal.SIGUSR2 in self.signals:
                raise CtapError(ERR.USER_ACTION_TIMEOUT)
            self.send(self.channel, CTAPHID.KEEPALIVE, bytes([self.UP_NEEDED]))
            for packet in self.packets(0.1):
                channel, kind = struct.unpack_from(">IB", packet)
                if channel != self.channel and kind & 0x80:
                    self.send(channel, CTAPHID.ERROR, bytes([self.ERR_CHANNEL_BUSY]))
                elif kind == 0x80 | CTAPHID.CANCEL:
                    raise CtapError(ERR.KEEPALIVE_CANCEL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", required=True, help="which key this is")
    parser.add_argument("--pin", help="its PIN; without, it has none")
    parser.add_argument("--protocol", type=int, choices=(1, 2), default=2, help="of the PIN")
    parser.add_argument("--touch", choices=("at-once", "signal"), default="at-once")
    parser.add_argument("--silent", action="store_true", help="gives the secret without a touch as well")
    Device(parser.parse_args()).run()


main()
