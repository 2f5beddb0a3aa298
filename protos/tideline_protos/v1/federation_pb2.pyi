from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ("protocol", "version")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("protocol", "oldest", "version", "time_ms")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    oldest: int
    version: str
    time_ms: int
    def __init__(self, protocol: _Optional[int] = ..., oldest: _Optional[int] = ..., version: _Optional[str] = ..., time_ms: _Optional[int] = ...) -> None: ...

class EnrolRequest(_message.Message):
    __slots__ = ("protocol", "token", "name", "roles", "version", "sign_key", "receive_key", "seen", "device")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SIGN_KEY_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_KEY_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    token: str
    name: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    version: str
    sign_key: bytes
    receive_key: bytes
    seen: Seen
    device: str
    def __init__(self, protocol: _Optional[int] = ..., token: _Optional[str] = ..., name: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., sign_key: _Optional[bytes] = ..., receive_key: _Optional[bytes] = ..., seen: _Optional[_Union[Seen, _Mapping]] = ..., device: _Optional[str] = ...) -> None: ...

class Seen(_message.Message):
    __slots__ = ("seq", "hash", "proof")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    seq: int
    hash: str
    proof: str
    def __init__(self, seq: _Optional[int] = ..., hash: _Optional[str] = ..., proof: _Optional[str] = ...) -> None: ...

class Announcement(_message.Message):
    __slots__ = ("id", "addresses", "authorities")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    id: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    authorities: str
    def __init__(self, id: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ..., authorities: _Optional[str] = ...) -> None: ...

class EnrolReply(_message.Message):
    __slots__ = ("name", "protocol", "version", "oldest", "time_ms", "standing", "seen", "warning", "ledger", "announcement")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    protocol: int
    version: str
    oldest: int
    time_ms: int
    standing: str
    seen: Seen
    warning: str
    ledger: LedgerEntry
    announcement: Announcement
    def __init__(self, name: _Optional[str] = ..., protocol: _Optional[int] = ..., version: _Optional[str] = ..., oldest: _Optional[int] = ..., time_ms: _Optional[int] = ..., standing: _Optional[str] = ..., seen: _Optional[_Union[Seen, _Mapping]] = ..., warning: _Optional[str] = ..., ledger: _Optional[_Union[LedgerEntry, _Mapping]] = ..., announcement: _Optional[_Union[Announcement, _Mapping]] = ...) -> None: ...

class LedgerEntry(_message.Message):
    __slots__ = ("number", "hash", "accepted")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    number: int
    hash: str
    accepted: bool
    def __init__(self, number: _Optional[int] = ..., hash: _Optional[str] = ..., accepted: bool = ...) -> None: ...

class RotateRequest(_message.Message):
    __slots__ = ("sign_key", "receive_key", "signature", "handover")
    SIGN_KEY_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    HANDOVER_FIELD_NUMBER: _ClassVar[int]
    sign_key: bytes
    receive_key: bytes
    signature: bytes
    handover: bytes
    def __init__(self, sign_key: _Optional[bytes] = ..., receive_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., handover: _Optional[bytes] = ...) -> None: ...

class RotateReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OrdersRequest(_message.Message):
    __slots__ = ("seen", "ledger", "reported")
    SEEN_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    seen: Seen
    ledger: LedgerEntry
    reported: LedgerEntry
    def __init__(self, seen: _Optional[_Union[Seen, _Mapping]] = ..., ledger: _Optional[_Union[LedgerEntry, _Mapping]] = ..., reported: _Optional[_Union[LedgerEntry, _Mapping]] = ...) -> None: ...

class OrderOrTick(_message.Message):
    __slots__ = ("order", "tick")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    order: Order
    tick: Tick
    def __init__(self, order: _Optional[_Union[Order, _Mapping]] = ..., tick: _Optional[_Union[Tick, _Mapping]] = ...) -> None: ...

class Tick(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("asking", "offered")
    ASKING_FIELD_NUMBER: _ClassVar[int]
    OFFERED_FIELD_NUMBER: _ClassVar[int]
    asking: OrdersRequest
    offered: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, asking: _Optional[_Union[OrdersRequest, _Mapping]] = ..., offered: _Optional[_Iterable[str]] = ...) -> None: ...

class PollReply(_message.Message):
    __slots__ = ("orders", "open")
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    orders: _containers.RepeatedCompositeFieldContainer[Order]
    open: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, orders: _Optional[_Iterable[_Union[Order, _Mapping]]] = ..., open: _Optional[_Iterable[str]] = ...) -> None: ...

class File(_message.Message):
    __slots__ = ("digest", "size")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size: int
    def __init__(self, digest: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class Sealed(_message.Message):
    __slots__ = ("digest", "size", "holder", "phase", "round", "cipher", "keys", "signatures")
    class KeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class SignaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CIPHER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size: int
    holder: str
    phase: str
    round: int
    cipher: File
    keys: _containers.ScalarMap[str, bytes]
    signatures: _containers.ScalarMap[str, bytes]
    def __init__(self, digest: _Optional[str] = ..., size: _Optional[int] = ..., holder: _Optional[str] = ..., phase: _Optional[str] = ..., round: _Optional[int] = ..., cipher: _Optional[_Union[File, _Mapping]] = ..., keys: _Optional[_Mapping[str, bytes]] = ..., signatures: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("id", "run", "cursor", "phase", "step", "round", "files", "seed", "after", "seconds_left", "brief", "sealed")
    ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    SECONDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    id: str
    run: str
    cursor: int
    phase: str
    step: str
    round: int
    files: _containers.RepeatedCompositeFieldContainer[File]
    seed: int
    after: int
    seconds_left: float
    brief: str
    sealed: _containers.RepeatedCompositeFieldContainer[Sealed]
    def __init__(self, id: _Optional[str] = ..., run: _Optional[str] = ..., cursor: _Optional[int] = ..., phase: _Optional[str] = ..., step: _Optional[str] = ..., round: _Optional[int] = ..., files: _Optional[_Iterable[_Union[File, _Mapping]]] = ..., seed: _Optional[int] = ..., after: _Optional[int] = ..., seconds_left: _Optional[float] = ..., brief: _Optional[str] = ..., sealed: _Optional[_Iterable[_Union[Sealed, _Mapping]]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("order", "parts")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    order: str
    parts: _containers.RepeatedCompositeFieldContainer[Wanted]
    def __init__(self, order: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[Wanted, _Mapping]]] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("digest", "offset")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    digest: str
    offset: int
    def __init__(self, digest: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class PushHead(_message.Message):
    __slots__ = ("order", "parts")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    order: str
    parts: _containers.RepeatedCompositeFieldContainer[Arrival]
    def __init__(self, order: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[Arrival, _Mapping]]] = ...) -> None: ...

class Arrival(_message.Message):
    __slots__ = ("digest", "size", "offset")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size: int
    offset: int
    def __init__(self, digest: _Optional[str] = ..., size: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class TicketRequest(_message.Message):
    __slots__ = ("order", "up", "parts")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    order: str
    up: bool
    parts: _containers.RepeatedCompositeFieldContainer[Arrival]
    def __init__(self, order: _Optional[str] = ..., up: bool = ..., parts: _Optional[_Iterable[_Union[Arrival, _Mapping]]] = ...) -> None: ...

class TicketReply(_message.Message):
    __slots__ = ("ticket", "lane")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    ticket: str
    lane: str
    def __init__(self, ticket: _Optional[str] = ..., lane: _Optional[str] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("order", "files", "metrics", "facts", "failure", "sealed", "ledger", "spent", "stages", "disclosed")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ORDER_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    DISCLOSED_FIELD_NUMBER: _ClassVar[int]
    order: str
    files: _containers.RepeatedCompositeFieldContainer[File]
    metrics: _containers.ScalarMap[str, float]
    facts: str
    failure: Failure
    sealed: _containers.RepeatedCompositeFieldContainer[Sealed]
    ledger: LedgerEntry
    spent: Spent
    stages: Stages
    disclosed: Disclosed
    def __init__(self, order: _Optional[str] = ..., files: _Optional[_Iterable[_Union[File, _Mapping]]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., facts: _Optional[str] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., sealed: _Optional[_Iterable[_Union[Sealed, _Mapping]]] = ..., ledger: _Optional[_Union[LedgerEntry, _Mapping]] = ..., spent: _Optional[_Union[Spent, _Mapping]] = ..., stages: _Optional[_Union[Stages, _Mapping]] = ..., disclosed: _Optional[_Union[Disclosed, _Mapping]] = ...) -> None: ...

class Spent(_message.Message):
    __slots__ = ("gpu_seconds", "cpu_seconds", "devices", "cores", "order")
    GPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    gpu_seconds: float
    cpu_seconds: float
    devices: int
    cores: int
    order: str
    def __init__(self, gpu_seconds: _Optional[float] = ..., cpu_seconds: _Optional[float] = ..., devices: _Optional[int] = ..., cores: _Optional[int] = ..., order: _Optional[str] = ...) -> None: ...

class Stages(_message.Message):
    __slots__ = ("fetching", "began", "done")
    FETCHING_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    fetching: float
    began: float
    done: float
    def __init__(self, fetching: _Optional[float] = ..., began: _Optional[float] = ..., done: _Optional[float] = ...) -> None: ...

class Disclosed(_message.Message):
    __slots__ = ("policy", "digest", "data")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    policy: str
    digest: str
    data: str
    def __init__(self, policy: _Optional[str] = ..., digest: _Optional[str] = ..., data: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "what")
    KIND_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    what: str
    def __init__(self, kind: _Optional[str] = ..., what: _Optional[str] = ...) -> None: ...

class Missing(_message.Message):
    __slots__ = ("digest", "offset")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    digest: str
    offset: int
    def __init__(self, digest: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("verdict", "missing", "error", "chunk")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    verdict: str
    missing: _containers.RepeatedCompositeFieldContainer[Missing]
    error: Failure
    chunk: int
    def __init__(self, verdict: _Optional[str] = ..., missing: _Optional[_Iterable[_Union[Missing, _Mapping]]] = ..., error: _Optional[_Union[Failure, _Mapping]] = ..., chunk: _Optional[int] = ...) -> None: ...

class BeatRequest(_message.Message):
    __slots__ = ("progress", "held", "clock_ms", "quiet", "stored", "announced", "declined")
    class ProgressEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class HeldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    QUIET_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    progress: _containers.ScalarMap[str, float]
    held: _containers.ScalarMap[str, str]
    clock_ms: int
    quiet: _containers.RepeatedScalarFieldContainer[str]
    stored: _containers.RepeatedScalarFieldContainer[str]
    announced: str
    declined: bool
    def __init__(self, progress: _Optional[_Mapping[str, float]] = ..., held: _Optional[_Mapping[str, str]] = ..., clock_ms: _Optional[int] = ..., quiet: _Optional[_Iterable[str]] = ..., stored: _Optional[_Iterable[str]] = ..., announced: _Optional[str] = ..., declined: bool = ...) -> None: ...

class BeatReply(_message.Message):
    __slots__ = ("gone", "rotate", "seen", "over", "deleted", "announcement")
    GONE_FIELD_NUMBER: _ClassVar[int]
    ROTATE_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    gone: _containers.RepeatedScalarFieldContainer[str]
    rotate: bool
    seen: Seen
    over: _containers.RepeatedScalarFieldContainer[str]
    deleted: _containers.RepeatedScalarFieldContainer[str]
    announcement: Announcement
    def __init__(self, gone: _Optional[_Iterable[str]] = ..., rotate: bool = ..., seen: _Optional[_Union[Seen, _Mapping]] = ..., over: _Optional[_Iterable[str]] = ..., deleted: _Optional[_Iterable[str]] = ..., announcement: _Optional[_Union[Announcement, _Mapping]] = ...) -> None: ...

class Note(_message.Message):
    __slots__ = ("order", "kind", "numbers", "words")
    class NumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class WordsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ORDER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    order: str
    kind: str
    numbers: _containers.ScalarMap[str, float]
    words: _containers.ScalarMap[str, str]
    def __init__(self, order: _Optional[str] = ..., kind: _Optional[str] = ..., numbers: _Optional[_Mapping[str, float]] = ..., words: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SendNotesRequest(_message.Message):
    __slots__ = ("notes",)
    NOTES_FIELD_NUMBER: _ClassVar[int]
    notes: _containers.RepeatedCompositeFieldContainer[Note]
    def __init__(self, notes: _Optional[_Iterable[_Union[Note, _Mapping]]] = ...) -> None: ...

class SendNotesReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class ProbeReply(_message.Message):
    __slots__ = ("data", "seconds")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    seconds: float
    def __init__(self, data: _Optional[bytes] = ..., seconds: _Optional[float] = ...) -> None: ...
