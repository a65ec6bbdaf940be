"""A bundle whose checks 1 to 4 are done: its manifest, who signed it, its images, and streams of verified blobs.

The checks themselves are `transload.manifests.bundle_checks`; this module reads the files for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from transload.import_side.block_reader import BlockReader
from transload.import_side.bundle_directory import BundleDirectory, Listing, irregular_file
from transload.import_side.bundle_images import SharedDocuments, image_of_entry
from transload.manifests import bundle_manifest, checksums_file
from transload.manifests.block_digests import BlockDigests, blocks_file_size
from transload.manifests.bundle_checks import README_NAME, BundleChecks, SignedBy
from transload.manifests.bundle_manifest import BlobEntry, BundleManifest, DescriptionEntry, ImageEntry
from transload.manifests.file_checks import COPY_AGAIN
from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import (
    BlobDamaged,
    BundleFileDamaged,
    BundleFileWrongSize,
    Faults,
    MalformedBundle,
    TransloadError,
    raise_all,
)
from transload.shared.image import Descriptor, Image
from transload.shared.signing.allowed_signers import AllowedSigners
from transload.shared.workers import Outcome, attempt

_SMALL_BLOB_BYTES = 1 * limits.MIB
"""Up to here a blob is cut out of a block that is kept a while, instead of reading the block for it alone."""


class VerifiedBundle:
    """A bundle that may be read. Safe to use from several threads; implements `BlobSource`.

    Attributes:
        manifest: bundle.json.
        signed_by: Whose signature counted; None for an unverified look.
        checksums: SHA256SUMS: file name -> hexadecimal SHA-256.
        checksums_digest: The digest of SHA256SUMS itself, which stands for the whole bundle.
        notes: What a person should hear although it is no fault.
        file_faults: What step 4 found, where `open` was told to go on; then only blocks can be checked.
        blobs_checked: Digests of the blobs whose own digest has been compared so far.
    """

    def __init__(
        self,
        directory: BundleDirectory,
        checks: BundleChecks,
        manifest: BundleManifest,
        checksums: Mapping[str, str],
        checksums_digest: Digest,
        readers: Mapping[str, BlockReader],
        file_faults: tuple[TransloadError, ...],
    ) -> None:
        self.directory = directory
        self.manifest = manifest
        self.checksums = checksums
        self.checksums_digest = checksums_digest
        self.readers = readers
        self.file_faults = file_faults
        self.blobs_checked: set[Digest] = set()
        self._checks = checks
        self._places: dict[str, BlobEntry] = {blob.digest: blob for blob in manifest.blobs}

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        trust: AllowedSigners | None,
        at: datetime,
        signer: str | None = None,
        keep_file_faults: bool = False,
    ) -> VerifiedBundle:
        """Read what checks 1 to 4 need, and do them in order.

        Args:
            folder: Where the bundle lies.
            trust: Who may sign; None for an unverified look.
            at: When the signer's key must be valid.
            signer: The principal that must have signed, or None for anyone in `trust`.
            keep_file_faults: Put the faults of step 4 into `file_faults` instead of raising them, so that `verify`
                can go on and name every damaged block as well. Nothing can be delivered from such a bundle.

        Raises:
            TransloadError: The first step that has faults raises them all; see `BundleChecks`.
            NotABundle, PathMissing, ReadFailed: There is no bundle to read.
        """
        directory = BundleDirectory(folder)
        try:
            return cls._check(directory, BundleChecks(trust, at=at, signer=signer), keep_file_faults=keep_file_faults)
        except BaseException:
            directory.close()
            raise

    @classmethod
    def _check(cls, directory: BundleDirectory, checks: BundleChecks, *, keep_file_faults: bool) -> VerifiedBundle:
        listing = directory.list()
        directory.require_bundle(listing)
        # 1. The signature.
        checksums_raw = directory.read_small(checksums_file.FILE_NAME, limits.MAX_CHECKSUMS_BYTES)
        checks.check_signature(checksums_raw, _read_signatures(directory, listing))
        # 2. SHA256SUMS.
        checksums = checks.check_checksums()
        # 3. bundle.json.
        manifest = checks.check_manifest(
            directory.read_small(bundle_manifest.FILE_NAME, limits.MAX_BUNDLE_MANIFEST_BYTES)
        )
        # 4. Names, sizes, and the digests of the small files.
        faults = _check_files(directory, listing, checks, manifest)
        if faults and not keep_file_faults:
            raise_all(faults)
        if faults:
            digests = _intact_block_digests(directory, listing, checksums, manifest)
        else:
            digests = [checks.check_blocks_file(artifact.name) for artifact in manifest.artifacts]
        readers = {one.artifact.name: BlockReader(directory, one) for one in digests}
        return cls(directory, checks, manifest, checksums, Digest.of(checksums_raw), readers, tuple(faults))

    @property
    def signed_by(self) -> SignedBy | None:
        """Whose signature counted; None for an unverified look."""
        return self._checks.signed_by

    @property
    def notes(self) -> list[str]:
        """What a person should hear although it is no fault."""
        return self._checks.notes

    def read_description(self, entry: DescriptionEntry) -> bytes:
        """A text about images, read again and compared with its digest again.

        Raises:
            BundleFileDamaged: It has changed since the bundle was opened.
            ReadFailed, BundleFileMissing, BundleFileWrongSize: It cannot be read.
        """
        raw = self.directory.read_small(entry.name, entry.size)
        if hashlib.sha256(raw).hexdigest() != self.checksums[entry.name]:
            raise BundleFileDamaged(
                f"{entry.name} does not have its digest any more.", hint=COPY_AGAIN, file=entry.name
            )
        return raw

    def close(self) -> None:
        """Give up the folder; streams that are still open fail."""
        self.directory.close()

    def images(self) -> list[Image]:
        """Every image, built from verified documents and compared with bundle.json.

        Raises:
            TransloadError: What any of them raises; see `image_outcomes`.
        """
        outcomes = list(self.image_outcomes())
        # One damaged block can cost a thousand images and is told once.
        raise_all(list({outcome.error.message: outcome.error for outcome in outcomes if outcome.error}.values()))
        return [outcome.result for outcome in outcomes if outcome.result]

    def image_outcomes(self) -> Iterator[Outcome[ImageEntry, Image]]:
        """Every image, or why it cannot be had: a damaged block spoils the images that use it and no others.

        Yields:
            An outcome an image. Errors: BlockDamaged, BlobDamaged, ReadFailed where its documents are damaged,
            MalformedBundle and ArchiveInconsistent where they contradict bundle.json.
        """
        sizes = {digest: place.size for digest, place in self._places.items()}
        documents = SharedDocuments(self.read_blob)
        for entry in self.manifest.images:
            yield attempt(entry, lambda entry: image_of_entry(entry, sizes, documents, self.read_blob))

    def open_blob(self, descriptor: Descriptor) -> Iterator[memoryview]:
        """A blob's bytes, from verified blocks; its own digest is compared before the last of them is handed on.

        Args:
            descriptor: Of a blob of this bundle.

        Raises:
            BlockDamaged, BundleFileWrongSize, ReadFailed: While iterating.
            BlobDamaged: Before the last piece: the blocks are intact, but the blob is not what it is called.
            MalformedBundle: The bundle has no such blob.
        """
        place = self._place(descriptor)
        if place.size <= _SMALL_BLOB_BYTES:
            content = self.read_blob(descriptor, _SMALL_BLOB_BYTES)
            if content:
                yield memoryview(content)
            return
        hasher, left = descriptor.digest.hasher(), place.size
        for piece in self.readers[place.artifact].stream(place.offset, place.size):
            hasher.update(piece)
            left -= len(piece)
            # The last piece is kept back until the whole is known to be right: whoever counts bytes never has all
            # of a wrong blob.
            if not left and hasher.hexdigest() != descriptor.digest.hex:
                raise _blob_damaged(descriptor, place)
            yield piece
        self.blobs_checked.add(descriptor.digest)

    def read_blob(self, descriptor: Descriptor, most_bytes: int) -> bytes:
        """A small blob as a whole; see `BlobSource`."""
        place = self._place(descriptor)
        if place.size > most_bytes:
            raise MalformedBundle(
                f"Blob {descriptor.digest} has {place.size:,} bytes; at most {most_bytes:,} are accepted of its kind."
            )
        content = self.readers[place.artifact].read(place.offset, place.size)
        if not descriptor.digest.matches(content):
            raise _blob_damaged(descriptor, place)
        self.blobs_checked.add(descriptor.digest)
        return content

    def _place(self, descriptor: Descriptor) -> BlobEntry:
        if self.file_faults:
            raise RuntimeError("a bundle with faulty files was opened for checking only")
        place = self._places.get(str(descriptor.digest))
        if place is None:
            raise MalformedBundle(f"The bundle holds no blob {descriptor.digest}.")
        return place


def _read_signatures(directory: BundleDirectory, listing: Listing) -> dict[str, bytes]:
    """The signature files in the order in which `BundleChecks` looks at them; what is beyond its limit stays unread."""
    names = sorted(listing.signatures, key=lambda name: (name.count("."), name))
    read = {name: _read_signature(directory, name) for name in names[: limits.MAX_SIGNATURES]}
    return {**read, **dict.fromkeys(names[limits.MAX_SIGNATURES :], b"")}


def _read_signature(directory: BundleDirectory, name: str) -> bytes:
    """A signature file; nothing for one too large to be one, so that junk beside a valid signature does not deny it."""
    try:
        return directory.read_small(name, limits.MAX_SIGNATURE_BYTES)
    except BundleFileWrongSize:
        return b""


def _check_files(
    directory: BundleDirectory, listing: Listing, checks: BundleChecks, manifest: BundleManifest
) -> list[TransloadError]:
    """Step 4, with what only a look at the folder can tell: links, devices and pipes."""
    faults: list[TransloadError] = [irregular_file(name, kind) for name, kind in sorted(listing.irregular.items())]
    try:
        checks.check_files(listing.files, _read_small_files(directory, listing, manifest))
    except TransloadError as error:
        found = error.errors if isinstance(error, Faults) else (error,)
        faults += [fault for fault in found if fault.facts.get("file") not in listing.irregular]
    return faults


def _read_small_files(directory: BundleDirectory, listing: Listing, manifest: BundleManifest) -> dict[str, bytes]:
    most = {README_NAME: limits.MAX_README_BYTES}
    most.update((artifact.blocks, limits.MAX_BLOCKS_FILE_BYTES) for artifact in manifest.artifacts)
    most.update((description.name, description.size) for description in manifest.descriptions)
    return {
        name: directory.read_small(name, most_bytes)
        for name, most_bytes in most.items()
        if listing.files.get(name, most_bytes + 1) <= most_bytes
    }


def _intact_block_digests(
    directory: BundleDirectory, listing: Listing, checksums: Mapping[str, str], manifest: BundleManifest
) -> list[BlockDigests]:
    """The block digests of those artifacts whose blocks file is as signed, for `verify` alone."""
    small_files = _read_small_files(directory, listing, manifest)
    return [
        BlockDigests(artifact, raw)
        for artifact in manifest.artifacts
        if (raw := small_files.get(artifact.blocks)) is not None
        and hashlib.sha256(raw).hexdigest() == checksums.get(artifact.blocks)
        and len(raw) == blocks_file_size(artifact)
    ]


def _blob_damaged(descriptor: Descriptor, place: BlobEntry) -> BlobDamaged:
    return BlobDamaged(
        f"Blob {descriptor.digest} at byte {place.offset:,} of {place.artifact} does not have its digest, although its "
        "blocks are as signed.",
        hint="It was wrong when the bundle was made. Have it exported again, and tell the exporter.",
        blob=str(descriptor.digest),
        artifact=place.artifact,
    )
