"""Every upper bound on what is read from a medium or a network, in one place, with its unit and reason."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# --- blocks and chunks (DESIGN: FORMAT.md, "Chunks and blocks") ---
BLOCK_SIZE_BYTES = 4 * MIB
"""Unit of verification. Small: each worker holds one in memory. Large: 500 GB need 4 MB of digests."""

DEFAULT_CHUNK_SIZE_BYTES = 4_000_000_000
"""Before rounding down to whole blocks: below FAT32's 4 GiB - 1 and one to a DVD."""

MAX_CHUNK_SIZE_BYTES = 4_290_772_992
"""The largest whole number of blocks below FAT32's file-size limit of 4,294,967,295 bytes."""

MAX_CHUNK_SIZE_LARGE_FILES_BYTES = 8 * 1024 * GIB
"""With --allow-large-files: what ext4, xfs and exFAT certainly hold."""

MAX_CHUNKS = 9_999
"""The chunk number has four digits, so that `cat images.tar.*` joins in the right order."""

# --- documents of a bundle ---
MAX_CHECKSUMS_BYTES = 8 * MIB
"""SHA256SUMS: about 100 bytes a file; 9,999 chunks and as many SIF files fit."""

MAX_SIGNATURE_BYTES = 16 * KIB
"""An RSA-8192 SSHSIG armoured is 3.5 KB."""

MAX_SIGNATURES = 16
"""Signature files looked at in one bundle; more are an attack on the verifier's time."""

MAX_BUNDLE_MANIFEST_BYTES = 64 * MIB
"""bundle.json: about 400 bytes a blob; 100,000 blobs fit."""

MAX_BUNDLE_ENTRIES = 200_000
"""Images, blobs or chunks named in one bundle.json."""

MAX_README_BYTES = 1 * MIB
MAX_DESCRIPTION_BYTES = 1 * MIB
"""One description of an image: NGC's are some 20 KiB."""

MAX_DESCRIPTIONS_BYTES = 64 * MIB
"""All descriptions of a bundle: a reader has them in memory while it compares digests."""

MAX_DESCRIPTIONS = 10_000
MAX_BLOCKS_FILE_BYTES = 64 * MIB
"""32 bytes a block: 8 TiB of artifact."""

MAX_BUNDLE_DIRECTORY_ENTRIES = 50_000
"""Directory entries looked at before the folder is called something else than a bundle."""

# --- image documents ---
MAX_MANIFEST_BYTES = 4 * MIB
"""What registries and Docker accept as the largest manifest."""

MAX_CONFIG_BYTES = 8 * MIB
"""Image configs are a few KiB; containerd refuses above 8 MiB."""

MAX_INDEX_DEPTH = 4
"""An index in an index is legal; deeper nesting has no use and can be endless."""

MAX_INDEX_MANIFESTS = 1_000
"""Manifests reachable from one index."""

MAX_LAYERS = 1_000
"""Docker itself stops at 127 layers."""

MAX_DOCUMENTS_BYTES = 256 * MIB
"""Manifests and indexes of all images of a bundle, each as often as an image needs it: 80,000 images of 3 KiB. Both
sides hold them in memory."""

MAX_BLOB_BYTES = 1024 * GIB
"""No layer is near it; it keeps sums of sizes within 64 bits."""

# --- registry answers ---
MAX_TOKEN_ANSWER_BYTES = 1 * MIB
MAX_TAG_PAGE_BYTES = 16 * MIB
MAX_TAG_PAGES = 10_000
MAX_TAGS = 1_000_000
MAX_CATALOG_PAGE_BYTES = 16 * MIB
"""A page of NGC's catalogue has 100 entries with descriptions of some 20 KiB."""

MAX_CATALOG_PAGES = 1_000
"""100,000 images; NGC has about a thousand."""

MAX_ERROR_BODY_BYTES = 8 * KIB
"""How much of an error body is read to quote a line of it."""

MAX_REDIRECTS = 5

CONNECT_TIMEOUT_SECONDS = 10.0
READ_TIMEOUT_SECONDS = 60.0
"""Longest silence on an open connection."""

MAX_RETRY_AFTER_SECONDS = 120.0
"""A server that wants a longer wait ends the run, resumable, instead of hanging it."""

MAX_REQUEST_ATTEMPTS = 6
"""One request, while it is answered with 429 or 5xx or its connection breaks: waits of 0.5 to 8 s, 16 s in all."""

FIRST_RETRY_WAIT_SECONDS = 0.5

MAX_RESUMES_WITHOUT_PROGRESS = 5
"""Broken connections of one blob in a row that brought less than `MIN_PROGRESS_BYTES`."""

MIN_PROGRESS_BYTES = 256 * KIB

MAX_UPLOAD_ATTEMPTS = 4
"""Of one blob, each from its beginning."""

UPLOAD_PIECE_BYTES = 8 * MIB
"""Size of one request of an upload in pieces: above what registries demand (5 MiB), below what proxies forbid."""

MAX_REJECTED_TOKENS = 2
"""Fresh tokens that a registry may reject for one request before the login counts as refused."""

DEFAULT_TOKEN_LIFETIME_SECONDS = 60
"""Where the token server does not say (distribution, token authentication)."""

CONNECTIONS_PER_HOST = 32
"""Kept open for reuse; more than any sensible --jobs."""

# --- files of the operator ---
MAX_STATE_BYTES = 64 * MIB
MAX_YAML_DEPTH = 32
"""Our own files nest 6 deep."""

MAX_YAML_NODES = 4_000_000
"""Values in one file: about 20 an image, 200,000 images."""

MAX_IMAGE_LIST_BYTES = 4 * MIB
MAX_KEY_FILE_BYTES = 64 * KIB
MAX_TRUST_FILE_BYTES = 4 * MIB
MAX_PASSWORD_BYTES = 64 * KIB
"""NGC keys are 90 bytes; tokens used as passwords reach a few KiB."""

# --- decompression ---
MAX_ZSTD_WINDOW_BYTES = 128 * MIB
"""`zstd --long=27`; anything larger is refused instead of allocated."""

MAX_DECOMPRESSION_RATIO = 1_200
"""gzip reaches 1,032:1 at best; zstd of zeros far more, which no real layer does."""

DECOMPRESSION_ALLOWANCE_BYTES = 64 * MIB
"""What a layer may decompress to whatever the ratio: a small layer may well hold one sparse file."""

ZSTD_INPUT_BYTES = 1 * KIB
"""Given to the zstd decoder at once: it has no output limit, and 4 bytes can stand for 128 KiB, so 32 MiB at most."""

COPY_BUFFER_BYTES = 1 * MIB
"""One read from a socket or a file."""
