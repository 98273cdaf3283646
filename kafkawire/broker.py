"""The composition root: builds one broker from its parts, starts them in order, and stops them in the reverse order.

Start: listeners are bound (the broker registers their ports), the metadata store is opened, the control plane loads the
cluster and acquires its leaderships, the log dirs are recovered, and only then are connections accepted. All access to
the outside comes in through `Deps`; `testing.py` gives others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from coordinator.api import ClusterImage
from coordinator.cluster_manager import ClusterManager
from coordinator.errors import CannotStart, MetadataUnavailable
from engine.errors import StoreRefused
from engine.options import StoreDeps
from engine.store import SegmentStore
from engine.tier import NoTier
from engine.waiting_reads import ConfirmationInputs, EventClock, WaitingReads
from kafkawire.adapters.cluster_defaults import adopt
from kafkawire.adapters.coordinators import Coordinators, build_coordinators
from kafkawire.adapters.followed_change import last_followed
from kafkawire.adapters.hosted import HostDeps
from kafkawire.adapters.known_cluster import known_cluster_id
from kafkawire.adapters.leaving import close_when_overdue
from kafkawire.adapters.measured_store import MeasuredStore
from kafkawire.adapters.options import (
    advertised,
    cleaner_options,
    coordinator_settings,
    limit,
    limit_connections,
    link_settings,
    replication_settings,
    server_limits,
    store_options,
    throttles,
)
from kafkawire.adapters.partition_host import EngineHost
from kafkawire.adapters.refusals import refusals
from kafkawire.adapters.replica_ends import ClusterReplicaEnds
from kafkawire.adapters.tier import RemoteTier, TierOpening, TierRefused, open_tier
from kafkawire.adapters.tls import TlsListeners, open_tls
from kafkawire.config.broker_config import Config, ConfigError
from kafkawire.config.effective import EffectiveConfigs
from kafkawire.deps import Deps
from kafkawire.fast_path import fast_paths
from kafkawire.fetching.cold_loads import ColdLoads
from kafkawire.fetching.expiry import expire_sessions
from kafkawire.fetching.sessions import FetchSessionCache
from kafkawire.handlers import API_TABLE
from kafkawire.peers.peers import Peers
from kafkawire.replication.confirmation import MetadataConfirmation
from kafkawire.replication.followers import Followers
from kafkawire.replication.replication import Replication
from kafkawire.requests.cold_searches import ColdSearches
from kafkawire.requests.context import Authorizer, BrokerInterfaces, allow_all, ignore
from kafkawire.requests.dispatch import Dispatcher
from kafkawire.requests.headers import response_class
from kafkawire.requests.metrics import RequestMetrics
from kafkawire.requests.throttles import Throttles
from kafkawire.requests.transactions import TransactionRules
from kafkawire.security.accepted_links import AcceptedLinks, Receiver
from kafkawire.security.secret import SecretRefused
from kafkawire.security.tls.settings import TlsRefused
from kafkawire.server.server import ServerLimits, ServerTls, serve
from kafkawire.server.stats import ServerStats
from kafkawire.server.transport import Listener
from kafkawire.wire.plans import warm

if TYPE_CHECKING:  # imported only for an HTTP listener
    from kafkawire.http.app import App
    from kafkawire.server.loop_watch import LoopWatch

_log = structlog.get_logger(__name__)


class StartError(Exception):
    """The broker cannot start; its text is the one line for the operator."""


class BrokerFailed(Exception):
    """The broker had to stop by itself; its text is the one line for the operator."""


@dataclass(slots=True, eq=False)
class Broker:
    """A broker and its parts. Set `stop` to end it in order."""

    config: Config
    deps: Deps
    listeners: dict[str, Listener] = field(default_factory=dict)
    http_urls: list[str] = field(default_factory=list)
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    stats: ServerStats = field(default_factory=ServerStats)
    stop: trio.Event = field(default_factory=trio.Event)
    closing: trio.Event = field(default_factory=trio.Event)  # leaderships are handed over: the server stops serving
    drained: trio.Event = field(default_factory=trio.Event)  # the server has answered its last request
    failure: str | None = None
    _authorizer: Authorizer = field(init=False)  # shared by the Kafka protocol and HTTP
    _configs: EffectiveConfigs = field(init=False)
    _limits: ServerLimits = field(init=False)
    _throttles: Throttles = field(init=False)  # of replication
    _ends: ClusterReplicaEnds = field(init=False)
    _reads: WaitingReads = field(init=False)  # reads that wait for their confirmation
    _transaction_rules: TransactionRules = field(default_factory=TransactionRules)
    _accepted_links: AcceptedLinks = field(default_factory=AcceptedLinks)
    _tls: TlsListeners | None = None
    _secret: bytes | None = None  # shared by the brokers of a cluster, for authentication
    _host: EngineHost | None = None
    _tier: RemoteTier | None = None
    _metadata: MeasuredStore | None = None
    _coordinator: ClusterManager | None = None
    _coordinators: Coordinators | None = None
    _replication: Replication | None = None

    def __post_init__(self) -> None:
        self._authorizer = allow_all
        self._configs = EffectiveConfigs(self.config)
        self._transaction_rules.verifies_partitions = self.config.transaction_partition_verification
        self._limits = server_limits(self.config, self.deps.descriptors.connections_max)
        self._reads = WaitingReads(EventClock(self.deps.boot_ms))
        self._throttles = throttles(self.config, self.deps.boot_ms)

    @property
    def is_live(self) -> bool:
        """Whether it has not been told to stop."""
        return not self.stop.is_set()

    @property
    def coordinator(self) -> ClusterManager:
        """The control plane, once started."""
        assert self._coordinator is not None
        return self._coordinator

    @property
    def coordinators(self) -> Coordinators:
        """Group and transaction coordinators, once started."""
        assert self._coordinators is not None
        return self._coordinators

    @property
    def tls(self) -> TlsListeners:
        """TLS of the listeners, once started."""
        assert self._tls is not None
        return self._tls

    @property
    def store(self) -> SegmentStore:
        """The segment store, once started."""
        assert self._host is not None
        return self._host.store

    def fail(self, reason: str) -> None:
        """Stop because going on is impossible; `run_broker` then raises BrokerFailed."""
        self.failure = reason
        self.stop.set()

    async def start(self, nursery: trio.Nursery) -> None:
        """Start every part; requests are accepted last. Its tasks live in `nursery`.

        Raises: StartError.
        """
        try:
            self._secret = self._read_secret()
            self._tls = await self._open_tls()
            await self._bind()
            await self._start_coordinator(nursery)
            await self._start_coordinators(nursery)
            await self._start_serving(nursery)
        except (CannotStart, ConfigError, MetadataUnavailable, StoreRefused, TierRefused, TlsRefused) as error:
            raise StartError(str(error)) from error

    async def close_store(self) -> None:
        """Sync queued appends and mark the log dirs clean, after the server has answered its last request."""
        if self._coordinators is not None:
            await self._coordinators.close()
        if self._host is not None and self._host.has_store:
            await self._host.close()

    async def close_listeners(self) -> None:
        """Close listeners and the metadata store, after the broker's tasks have ended."""
        for listener in self.listeners.values():
            listener.close()
        if self._metadata is not None:
            await self._metadata.close()

    def _read_secret(self) -> bytes | None:
        """The secret that brokers of a cluster share; None for a single broker. Raises StartError."""
        path = self.config.inter_broker_secret_file
        try:
            return self.deps.read_secret(path) if self.config.is_in_cluster and path is not None else None
        except SecretRefused as error:
            raise StartError(f"inter.broker.secret.file: {error}") from error

    async def _open_tls(self) -> TlsListeners:
        """TLS of the listeners that speak it. Raises ConfigError, TlsRefused."""
        crypto, config = self.deps.crypto, self.config
        listeners = await crypto(partial(open_tls, config, self._now)) if config.tls_listeners else {}
        return TlsListeners(listeners, crypto, config.ssl_reload_interval_ms)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.deps.now_ms() / 1000, UTC)

    async def _bind(self) -> None:
        for one in self.config.listeners:
            try:
                self.listeners[one.name] = await self.deps.listen(one.host, one.port)
            except OSError as error:
                where, reason = f"{one.name}://{one.host}:{one.port}", error.strerror or error
                raise StartError(f"listeners: cannot bind {where}: {reason}") from error

    async def _start_coordinator(self, nursery: trio.Nursery) -> None:
        config = self.config
        self._metadata = MeasuredStore(await self.deps.open_metadata(config))
        self._host = EngineHost(
            partial(self._start_store, nursery),
            self._configs,
            self._configured,
            HostDeps(nursery.start_soon, lambda: self.coordinator),
            self._confirming(),
        )
        is_refused = refusals(self.deps.connect, config.inter_broker_listener)
        endpoints = advertised(config, {name: listener.address[1] for name, listener in self.listeners.items()})
        log_dirs = [str(path.absolute()) for path in config.log_dirs]
        cluster_id = known_cluster_id(self.deps.filesystem, log_dirs)
        followed = last_followed(self.deps.filesystem, log_dirs)
        self._ends = ClusterReplicaEnds(config.node_id, lambda: self.store)
        settings = coordinator_settings(config, endpoints, is_refused, self.end_links, cluster_id, followed, self._ends)
        self._coordinator = ClusterManager(self._metadata, self._host, self._configs, settings, self.deps.random)
        await self._coordinator.start()
        self.store.strays.may_age = self._metadata.usable_by(lambda: self.coordinator.lets_strays_age)
        if config.is_in_cluster:
            await adopt(self._coordinator, config.given)
        nursery.start_soon(self._coordinator.run)
        nursery.start_soon(self._host.remember, self._coordinator)

    def _confirming(self) -> ConfirmationInputs | None:
        metadata, timeout_ms = self._metadata, self.config.zookeeper_session_timeout_ms
        if not self.config.is_in_cluster or metadata is None:
            return None
        return ConfirmationInputs(
            lambda: self.coordinator.has_session and metadata.age_s * 1000 <= timeout_ms, self._reads
        )

    def _configured(self, config: Config) -> None:
        """Apply configs that were changed at run time. The host applies those of partitions."""
        limit_connections(self._limits, config, self.deps.descriptors.connections_max)
        self.store.producer_id_expiration_ms = config.producer_id_expiration_ms
        self._transaction_rules.verifies_partitions = config.transaction_partition_verification
        self.store.cleaner.configure(cleaner_options(config))
        limit(self._throttles, config)

    async def _start_coordinators(self, nursery: trio.Nursery) -> None:
        links = self._ends.links = self._links()
        self._coordinators = await build_coordinators(
            self.config, self.coordinator, self.store, self.deps.open_view, self.deps.random, self.deps.now_ms, links
        )
        nursery.start_soon(self._coordinators.run, self.closing)
        if links is not None:
            self._replication = Replication(
                self.coordinator,
                self.store,
                links,
                replication_settings(self.config),
                self.metrics.replication,
                self._throttles.follower,
            )
            nursery.start_soon(self._replication.run)
            nursery.start_soon(MetadataConfirmation(self._reads, self.coordinator.follow_newest).run)

    def end_links(self) -> None:
        """End the accepted peer connections before another registration: their late requests are not executed."""
        self._accepted_links.end_all()

    def _links(self) -> Peers | None:
        """Peer connections to the other brokers; None for a single broker."""
        config, deps, cluster, secret = self.config, self.deps, self.coordinator, self._secret
        if secret is None:
            return None
        receiver = Receiver(
            broker_id=config.node_id,
            listener_name=config.inter_broker_listener,
            secret=secret,
            incarnation=lambda: cluster.incarnation,
            image=lambda: cluster.image,
            random_bytes=deps.random.randbytes,
        )
        self._accepted_links = AcceptedLinks(receiver)
        return Peers(link_settings(config, secret), cluster, lambda: cluster.broker_epoch, deps.connect, deps.random)

    async def _start_store(self, nursery: trio.Nursery, image: ClusterImage) -> SegmentStore:
        assert self._host is not None
        logs, current = self._host.tierable, lambda: self._configs.config
        tiered = [topic.name for topic in image.topics.values() if self._configs.is_in_tier(topic)]
        opening = TierOpening(image.cluster_id, self.coordinator.tier, tiered, logs)
        self._tier = await open_tier(current, opening, self.deps, nursery)
        options = store_options(self.config, image.cluster_id, self.deps.descriptors.segments_max)
        store_deps = StoreDeps(
            filesystem=self.deps.filesystem,
            open_index=self.deps.open_index,
            pool=self.deps.pool,
            random=self.deps.random,
            now_ms=self.deps.now_ms,
            on_fatal=self.fail,
            on_problem=lambda problem: _log.error("storage problem found", problem=problem),
            tier=NoTier() if self._tier is None else self._tier.segments,
            on_offline=self.coordinator.note_loss,
        )
        store = SegmentStore(options, store_deps)
        await nursery.start(store.run)
        return store

    async def _start_serving(self, nursery: trio.Nursery) -> None:
        if self._tier is not None:
            self._tier.follow(nursery, self.coordinator, self.coordinators.groups, self._configs.is_in_tier)
        if self.config.http_listener is not None:
            await self._start_http(nursery, *self.config.http_listener)
        effective, cache_size_bytes = self._configs, self.config.tier_cache_size_bytes
        interfaces = BrokerInterfaces(
            store=self.store,
            cluster=self.coordinator,
            groups=self.coordinators.groups,
            transactions=self.coordinators.transactions,
            markers=self.coordinators.markers,
            config=self.config,
            configs=self._configs,
            fetch_sessions=FetchSessionCache(self.config.fetch_session_slots, self.deps.random, self.deps.now_ms),
            cold_loads=ColdLoads(nursery, lambda: effective.config.tier_fetch_max_wait_ms, cache_size_bytes),
            cold_searches=ColdSearches(nursery, lambda: effective.config.tier_list_offsets_timeout_ms),
            metrics=self.metrics,
            transaction_rules=self._transaction_rules,
            log_levels=self.deps.log_levels,
            now_ms=self.deps.now_ms,
            authorizer=self._authorizer,
            decode_elsewhere=self.deps.decode_elsewhere,
            links=self._accepted_links,
            followers=Followers(self._reads),
            throttles=self._throttles,
            transactions_of_cluster=self.coordinators.transactions_of_cluster,
            note_follower=self._replication.note_follower if self._replication is not None else ignore,
        )
        nursery.start_soon(expire_sessions, interfaces.fetch_sessions)
        nursery.start_soon(interfaces.departed.run, self.coordinator)
        if self.tls.listeners:
            nursery.start_soon(self.tls.run)
        warm((api.request, response_class(api.key), api.max_version) for api in API_TABLE)
        named = {name: [listener] for name, listener in self.listeners.items()}
        nursery.start_soon(self._leave_at_stop)
        nursery.start_soon(close_when_overdue, self.stop, self.closing)
        dispatcher = Dispatcher(interfaces, API_TABLE, fast_paths(interfaces, API_TABLE))
        await nursery.start(partial(self._serve, named, dispatcher))

    async def _leave_at_stop(self) -> None:
        """Leave the cluster when `stop` is set. A broker that has failed has nothing to wait for."""
        await self.stop.wait()
        if self.failure is None:
            await self.coordinator.leave()
        self.closing.set()

    async def _serve(
        self,
        listeners: dict[str, list[Listener]],
        dispatcher: Dispatcher,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `closing`; then close the parts behind the server, and end every other task."""
        await serve(
            listeners,
            dispatcher,
            self._limits,
            stop=self.closing,
            stats=self.stats,
            rounds=self.store,
            tls=ServerTls(self.tls.listeners, self.deps.crypto),
            task_status=task_status,
        )
        self.drained.set()

    async def _start_http(self, nursery: trio.Nursery, host: str, port: int) -> None:
        from kafkawire.http.serve import serve_http
        from kafkawire.server.loop_watch import LoopWatch

        watch = LoopWatch()
        nursery.start_soon(watch.run)
        try:
            self.http_urls = await nursery.start(serve_http, self.http_app(watch), host, port)
        except OSError as error:
            raise StartError(f"http.listeners: cannot bind http://{host}:{port}: {error.strerror or error}") from error

    def http_app(self, watch: LoopWatch) -> App:
        """The application behind the HTTP listener."""
        from kafkawire.http.assembly import BrokerParts, assemble_app

        assert self._host is not None
        assert self._metadata is not None
        parts = BrokerParts(
            config=self.config,
            now_ms=self.deps.now_ms,
            metrics=self.metrics,
            stats=self.stats,
            watch=watch,
            store=self.store,
            coordinator=self.coordinator,
            groups=self.coordinators.groups,
            transactions=self.coordinators.transactions,
            tier=self._tier,
            authorizer=self._authorizer,
            throttles=self._throttles,
            not_served=self._host.not_served,
            metadata=self._metadata,
            reads=self._reads,
            tls=self.tls,
        )
        return assemble_app(parts, lambda: self.is_live)
