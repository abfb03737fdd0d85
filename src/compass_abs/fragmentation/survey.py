"""Everything that this room knows of one pool, as data: what `compass sif` prints."""

from dataclasses import asdict, dataclass

from compass_abs.fragmentation.demand import wcc_margin
from compass_abs.fragmentation.exact import inherent, minimum_used
from compass_abs.fragmentation.gangs import largest_gang, largest_gang_repacked
from compass_abs.fragmentation.pinned import HeldNodes, fewest_partial_around, held_nodes, largest_gang_around
from compass_abs.fragmentation.published import free_on_partial_ratio, unusable_free_ratio
from compass_abs.model import ClusterState


@dataclass(frozen=True, slots=True)
class LargestGang:
    """How many instances of one size fit at once."""

    gpus: int
    now: int
    #: In the best packing, when everything may move.
    repacked: int
    #: In the best packing around the pinned instances.
    repacked_around_pinned: int
    #: Share of the free GPUs that no instance of this size can use now.
    unusable_free_ratio: float


@dataclass(frozen=True, slots=True)
class Survey:
    """The fragmentation of one pool, gross and split."""

    pool: str
    capacity: int
    #: Nodes that are up; the others count in nothing below.
    nodes: int
    nodes_not_up: int
    gpus: int
    free_gpus: int
    free_on_partial_ratio: float
    #: Running instances by size; index 0 is unused.
    demand: tuple[int, ...]
    pinned_instances: int
    empty_nodes: int
    used_nodes: int
    fewest_used_nodes: int
    partial_nodes: int
    #: Φ*: partial nodes in the best packing.
    unavoidable_partial_nodes: int
    #: The fewest partial nodes with the pinned instances held where they are.
    fewest_partial_nodes_around_pinned: int
    wcc_margin: int
    largest_gangs: tuple[LargestGang, ...]

    @property
    def gross(self) -> float:
        """F."""
        return self._share(self.partial_nodes)

    @property
    def inherent(self) -> float:
        """F*."""
        return self._share(self.unavoidable_partial_nodes)

    @property
    def avoidable_partial_nodes(self) -> int:
        """N·SIF."""
        return self.partial_nodes - self.unavoidable_partial_nodes

    @property
    def sif(self) -> float:
        """F − F*."""
        return self._share(self.avoidable_partial_nodes)

    @property
    def reclaimable_partial_nodes(self) -> int:
        """Partial nodes that moves of what may move could do away with."""
        return self.partial_nodes - self.fewest_partial_nodes_around_pinned

    @property
    def reclaimable_sif(self) -> float:
        """Their share of all nodes."""
        return self._share(self.reclaimable_partial_nodes)

    @property
    def avoidable_used_nodes(self) -> int:
        """U − U*."""
        return self.used_nodes - self.fewest_used_nodes

    @property
    def wcc_holds(self) -> bool:
        """Whether the workload composition condition holds."""
        return self.wcc_margin >= 0

    def _share(self, nodes: int) -> float:
        return nodes / self.nodes if self.nodes else 0.0

    def as_dict(self) -> dict[str, object]:
        """Plain data with everything above; `demand` by size."""
        plain = asdict(self)
        plain["demand"] = {str(gpus): count for gpus, count in enumerate(self.demand) if gpus}
        plain["largest_gangs"] = [asdict(gang) for gang in self.largest_gangs]
        for name in (
            "gross",
            "inherent",
            "sif",
            "avoidable_partial_nodes",
            "reclaimable_partial_nodes",
            "reclaimable_sif",
            "avoidable_used_nodes",
            "wcc_holds",
        ):
            plain[name] = getattr(self, name)
        return plain


def survey(state: ClusterState) -> Survey:
    """Measures a pool; exact throughout, with an integer program where instances are pinned or nodes have 16 GPUs."""
    held = held_nodes(state)
    counts, capacity, nodes = state.demand, state.capacity, state.available_nodes
    unavoidable = inherent(counts, capacity)
    around_pinned = fewest_partial_around(held, capacity) if held.has_pinned else unavoidable
    return Survey(
        pool=state.pool,
        capacity=capacity,
        nodes=nodes,
        nodes_not_up=len(state.nodes) - nodes,
        gpus=nodes * capacity,
        free_gpus=state.free_gpus,
        free_on_partial_ratio=free_on_partial_ratio(state),
        demand=tuple(counts),
        pinned_instances=sum(counts) - sum(held.movable),
        empty_nodes=state.empty_nodes,
        used_nodes=state.used_nodes,
        fewest_used_nodes=minimum_used(counts, capacity),
        partial_nodes=state.partial_nodes,
        unavoidable_partial_nodes=unavoidable,
        fewest_partial_nodes_around_pinned=around_pinned,
        wcc_margin=wcc_margin(counts, capacity),
        largest_gangs=tuple(_largest(state, held, gpus) for gpus in range(1, capacity + 1)),
    )


def _largest(state: ClusterState, held: HeldNodes, gpus: int) -> LargestGang:
    repacked = largest_gang_repacked(state.demand, state.available_nodes, gpus, state.capacity)
    return LargestGang(
        gpus=gpus,
        now=largest_gang(state, gpus),
        repacked=repacked,
        repacked_around_pinned=largest_gang_around(held, gpus, state.capacity) if held.has_pinned else repacked,
        unusable_free_ratio=unusable_free_ratio(state, gpus),
    )
