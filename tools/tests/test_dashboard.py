"""The dashboard is the one its generator writes."""

from tools.generate_dashboard import TARGET, dashboard


def test_the_dashboard_is_current() -> None:
    assert TARGET.read_text(encoding="utf-8") == dashboard(), "run `make generate`"
