"""Placement of a group's workers on a cluster with several nodes."""

import logging
from collections import Counter

import pytest

from orchestration.launch import placement, ray_session
from orchestration.launch.address import bind_to_loopback
from orchestration.launch.nodes import WorkerRequirements, watch_nodes
from orchestration.launch.session import PATIENCE
from training.specs import EngineSettings

NODE = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 100_000_000}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_consecutive_ranks_share_a_node(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Ray 2.60 mixes the nodes if there are more than sixteen equal bundles."""
    from ray.cluster_utils import Cluster

    for name, seconds in PATIENCE.items():
        monkeypatch.setenv(name, str(seconds))
    requirements = WorkerRequirements(num_workers=21)
    with bind_to_loopback(), caplog.at_level(logging.WARNING):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, **NODE})
        try:
            for cpus in (5, 8):  # the test starts no worker processes on them
                cluster.add_node(num_cpus=cpus, **NODE)
            with (
                ray_session(cluster.address, cpus=1),
                watch_nodes(requirements) as nodes,
                placement.place_workers(requirements, EngineSettings(tensor_parallel_size=4), {}, nodes=nodes) as group,
            ):
                node_of = placement._node_of(group.placement)
                found = [node_of[bundle] for bundle in group.bundles]
        finally:
            cluster.shutdown()
    assert sorted(group.bundles) == list(range(21))
    assert list(Counter(found[:8]).values()) == list(Counter(found[8:16]).values()) == [8]
    assert list(Counter(found[16:]).values()) == [5]
    assert not caplog.records


def test_groups_divided_between_nodes_are_counted() -> None:
    nodes = [*"aaaaabbb"]
    assert placement.count_divided_groups(nodes, together=4) == 1
    assert placement.count_divided_groups(nodes, together=8) == 1
    assert placement.count_divided_groups(nodes, together=1) == 0
