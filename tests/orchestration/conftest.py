"""A fixture that tests with MLflow runs share: the template of MLflow stores is not that of the user."""

from collections.abc import Iterator

import pytest

from orchestration.tracking import stores


@pytest.fixture(scope="session", autouse=True)
def store_template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In the test process, the first new store becomes the template of the others, in a temporary directory."""
    template = tmp_path_factory.mktemp("store") / "mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "_template", lambda: template)
        yield
