"""One point of each fault that no other test covers; `make chaos` plays all faults at more moments."""

import pytest

from tests.chaos.ground import Ended, Ground
from tests.chaos.plan import Point, lacking
from tests.chaos.play import play, undisturbed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    ground = Ground(tmp_path_factory.mktemp("chaos"))
    ground.prepare()
    return ground


@pytest.fixture(scope="module")
def whole(ground: Ground) -> Ended:
    return undisturbed(ground)


@pytest.mark.parametrize(
    ("fault", "moment"),
    [
        ("kill head", "training"),
        ("kill driver", "exporting"),
        ("long partition", "training"),
        ("killed for memory", "training"),
        ("MLflow locked", "training"),
    ],
)
def test_a_disturbed_run_equals_the_undisturbed_run(fault: str, moment: str, ground: Ground, whole: Ended) -> None:
    point = Point(fault, moment, seed=0)
    if reason := lacking(point):
        pytest.skip(reason)
    outcome = play(point, ground, whole)
    assert not outcome.faults, f"{outcome.logs}: {outcome}"
