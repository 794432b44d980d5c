import pytest


@pytest.fixture(autouse=True)
def away_from_real_files(request, monkeypatch, tmp_path):
    """Tests see no data but their own, unless they are marked to need the real sets."""
    if request.node.get_closest_marker("realdata") is None:
        monkeypatch.delenv("POSTERITY_DATA", raising=False)
        monkeypatch.setenv("POSTERITY_CACHE", str(tmp_path / "cache"))
